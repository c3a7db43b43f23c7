"""``python -m tests.chaos``: lets faults happen to all protocols, and says which promises broke."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.chaos.builds.__main__ import main as try_builds
from tests.chaos.failovers.run import PROTOCOLS, fail_over_often
from tests.chaos.nemeses import NEMESES
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.nemeses.processes import UPGRADE
from tests.chaos.older import last_tag, source_of
from tests.chaos.plan import TOGETHER, Episode, cells, episodes
from tests.chaos.report import Report, repeat, shown
from tests.chaos.run import AT_ONCE, run
from tests.chaos.subject import Subject
from tests.chaos.subjects import SUBJECTS

MINUTES: Final = 5
LEFT_OUT: Final = {
    "netem": "tc netem needs a kernel module that few machines have; the proxies delay and cut",
    "oom-killer": "to a process it is SIGKILL: kill-redis, kill-worker",
}
"""Faults that are not done as such, and what stands for them."""


def main() -> int:
    """Run what the command line says; return 1 if a promise was broken."""
    parser = _parser()
    options = parser.parse_args()
    if options.list:
        _list()
        return 0
    if options.builds is not None:
        return try_builds(options.builds)
    if options.failovers:
        if not set(options.protocol or ()) <= set(PROTOCOLS):
            parser.error(f"--failovers sends messages of {' and '.join(PROTOCOLS)} only")
        return _fail_over(options)
    return _do_faults(options)


def _do_faults(options: argparse.Namespace) -> int:
    """Do the faults of all episodes; return 1 if a promise was broken."""
    report = Report(options.seed)
    with ExitStack() as stack:
        keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        older = _older(options.older, stack)
        nemeses = list(_available(options.nemesis or NEMESES, older))
        subjects = [SUBJECTS[name] for name in options.protocol or SUBJECTS]
        for number, episode in enumerate(_planned(options, subjects, nemeses), 1):
            names = "+".join(nemesis.name for nemesis in episode.nemeses)
            folder = keep / f"{number:03}-{episode.subject.name}-{names}"
            folder.mkdir(parents=True)
            verdict = run(
                episode.subject,
                episode.nemeses,
                seconds=options.seconds,
                seed=episode.seed,
                folder=folder,
                older=older,
                lease_s=options.lease,
                pause_s=options.pause,
                at_once=options.compose or AT_ONCE,
            )
            report.add(episode, verdict)
            _say(f"{number:4} {episode.subject.name:8} {names}: {_summary(verdict.counts)}")
            if verdict.violations:
                _say(*shown(verdict.violations))
                again = repeat(episode, seconds=options.seconds, compose=options.compose)
                _say(f"  repeat: {again}")
    if options.json:
        print(json.dumps(report.json, indent=1))  # noqa: T201  (what was asked for)
    else:
        began = f"{report.began:%Y-%m-%d %H:%M} UTC"
        table = report.matrix if options.matrix else report.table
        print(*table, "", f"seed {report.seed}, {began}", sep="\n")  # noqa: T201  (the same)
    return 1 if report.found else 0


def _fail_over(options: argparse.Namespace) -> int:
    """Let failovers happen while messages are sent; return 1 if a send is lost that must not be."""
    with tempfile.TemporaryDirectory() as folder:
        result = fail_over_often(
            options.failovers,
            rate=options.rate,
            durable=options.durable,
            seed=options.seed,
            folder=Path(folder),
            replicas=options.replicas,
            protocols=options.protocol or PROTOCOLS,
            pause_s=options.pause,
            say=_say,
        )
    lines = [json.dumps(result.json, indent=1)] if options.json else result.lines
    print(*lines, sep="\n")  # noqa: T201  (what was asked for)
    return 1 if result.broken else 0


def _planned(
    options: argparse.Namespace, subjects: Sequence[Subject], nemeses: Sequence[Nemesis]
) -> Iterator[Episode]:
    minutes: float | None = options.minutes
    planned: Iterator[Episode]
    if options.once:
        planned = (Episode(subject, tuple(nemeses), options.seed) for subject in subjects)
    elif options.matrix:
        planned = itertools.chain.from_iterable(
            cells(subjects, nemeses, options.seed + turn, options.compose or 1)
            for turn in range(options.matrix)
        )
    else:
        together = max(options.together, options.compose or 0)
        planned = episodes(subjects, nemeses, options.seed, together)
        minutes = minutes or MINUTES
    until = time.monotonic() + minutes * 60 if minutes else math.inf
    return itertools.takewhile(lambda _: time.monotonic() < until, planned)


def _available(names: Iterable[str], older: Path | None) -> Iterator[Nemesis]:
    for name in names:
        nemesis = NEMESES[name]
        reason = nemesis.unavailable()
        if name == UPGRADE and older is None:
            reason = "there is no tag, and no revision was given (--older)"
        if reason:
            _say(f"left out: {name}: {reason}")
        else:
            yield nemesis
    for name, reason in LEFT_OUT.items():
        _say(f"left out: {name}: {reason}")


def _older(revision: str | None, stack: ExitStack) -> Path | None:
    """Return the sources of the version to upgrade from; `None` if there is none."""
    if revision is None and (revision := last_tag()) is None:
        return None
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tambo-older-"))
    return source_of(revision, Path(folder))


def _summary(counts: dict[str, int]) -> str:
    shown = ("confirmed", "unknown", "runs", "completed", "completed again", "dead", "stored")
    return ", ".join(f"{counts[name]} {name}" for name in shown if counts[name])


def _say(*lines: str) -> None:
    """Print progress, where it does not mix with the report."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201  (the progress of a command)


def _list() -> None:
    for subject in SUBJECTS.values():
        faults = " ".join(name for name, each in NEMESES.items() if each.applies(subject))
        print(f"{subject.name}: {faults}")  # noqa: T201  (what was asked for)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.chaos",
        description="Let faults happen to processes of each protocol, and check what they promise."
        " Exit code 1: a promise was broken. The seed chooses what happens in which order, not how"
        " the machine schedules it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, help=f"start no run after this time; {MINUTES} without --matrix")
    add("--seed", type=int, default=1, help="chooses faults, their order, victims and lengths")
    add("--protocol", action="append", choices=SUBJECTS, help="only this one; may be repeated")
    add("--nemesis", action="append", choices=NEMESES, help="only this fault; may be repeated")
    add("--together", type=int, default=TOGETHER, help="kinds of faults in one run")
    add("--compose", type=int, metavar="N", help=f"faults at the same time; {AT_ONCE} by default")
    add("--seconds", type=float, default=20.0, help="how long faults happen in one run")
    add("--lease", type=float, default=2.0, help="the lease of messages, in seconds")
    add("--pause", type=float, default=1.5, help="seconds between faults, on average")
    add("--matrix", type=int, metavar="N", help="N runs for each protocol and fault, one by one")
    add("--once", action="store_true", help="one run for each protocol, with all given faults")
    add("--older", metavar="REVISION", help="the version for `upgrade`; default: the last tag")
    add("--json", action="store_true", help="print the report as JSON")
    add("--keep", type=Path, metavar="DIR", help="keep histories and logs of all processes there")
    add("--builds", nargs="*", metavar="WORD", help="find broken builds instead: all, or some")
    add("--failovers", type=int, metavar="N", help="fail over so often under load instead")
    add("--rate", type=float, default=2000.0, help="sends a second during failovers")
    add("--durable", default="memory", help="the durability of sends during failovers")
    add("--replicas", type=int, default=1, help="replicas of the server that fails over")
    add("--list", action="store_true", help="print the protocols with their faults, and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
