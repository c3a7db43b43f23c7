"""What ``tambo work`` prints when it has loaded its targets."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import tambomq
from tambomq.text import spelled_out
from tambomq.work.messages import TargetInfo
from tambomq.work.options import WorkOptions

MAX_NAMES = 8
"""Jobs of a queue that are named; the others are counted."""
_MIN_COLUMNS = 30


def banner(
    options: WorkOptions, targets: Sequence[TargetInfo], url: str | None, columns: int
) -> str:
    """Return the version, what is worked on and where, and how to stop it."""
    servers = ", ".join(dict.fromkeys(each.redis for each in targets))
    many = "1 process" if options.processes == 1 else f"{options.processes} processes"
    lines = [f"TamboMQ {tambomq.__version__} works on {servers} in {many}", ""]
    width = max(len(spelled_out(each.queue)) for each in targets)
    for each in targets:
        lines += _folded(f"  {spelled_out(each.queue):{width}}  ", _about(each), columns)
    if url is not None:
        lines += ["", f"  {url}/healthz /livez /readyz /metrics"]
    if options.reload:
        lines += ["", "  Restarts when a file changes."]
    drain = f"{options.drain_s:g} s"
    lines += ["", f"Ctrl-C finishes what runs (up to {drain}), once more gives it back.", ""]
    return "\n".join(lines)


def _folded(head: str, text: str, columns: int) -> list[str]:
    """Return *head* and *text* as lines, which are not broken where that would split a word."""
    width = max(columns - len(head), _MIN_COLUMNS)
    folded = wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [head + folded[0], *(" " * len(head) + line for line in folded[1:])]


def banner_json(
    options: WorkOptions, targets: Sequence[TargetInfo], url: str | None
) -> dict[str, object]:
    """Return the same for programs."""
    return {
        "event": "started",
        "version": tambomq.__version__,
        "processes": options.processes,
        "http": url,
        "targets": [
            {
                "queue": each.queue,
                "source": each.source,
                "kind": each.kind,
                "redis": each.redis,
                "concurrency": each.concurrency,
                "jobs": each.jobs,
            }
            for each in targets
        ],
    }


def _about(target: TargetInfo) -> str:
    names = [spelled_out(each) for each in target.jobs[:MAX_NAMES]]
    if (more := len(target.jobs) - MAX_NAMES) > 0:
        names.append(f"and {more} more")
    jobs = f": {', '.join(names)}" if names else ""
    return f"{target.concurrency} at a time, {target.source} ({target.kind}){jobs}"
