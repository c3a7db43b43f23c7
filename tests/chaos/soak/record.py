"""The record of a soak: its totals as a table, for docs/soak.md."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

_SHOWN: Final = 5


def record(totals: Mapping[str, Any], verdict: str, *, rate: float, seed: int) -> str:
    """Return *totals* as Markdown; *rate*: the messages a second that were asked for."""
    minutes = totals["seconds"] / 60
    load = "/".join(f"{each:.0f}" for each in os.getloadavg())
    begin = (
        f"{datetime.now(UTC):%Y-%m-%d}, {minutes:.0f} minutes, seed {seed}, {rate:,.0f} messages a "
        f"second, {os.cpu_count()} cores, load average at the end {load}: {verdict}."
    )
    rows = [f"| {what} | {value} |" for what, value in _rows(totals)]
    return "\n".join((begin, "", "| | |", "|---|---|", *rows, ""))


def _rows(totals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    seconds = totals["seconds"] or 1
    yield "confirmed", f"{totals['confirmed']:,}, {totals['in_time'] / seconds:,.0f} a second"
    for name, each in totals["subjects"].items():
        counts = ", ".join(f"{word} {count:,}" for word, count in each.items() if count)
        yield f"{name}", counts
    yield "lost", f"{totals['lost']}"
    yield "left at the end", f"{totals['left']}"
    yield "handled twice", f"{totals['doubles']}, of at most {totals['allowed_doubles']}"
    faults = ", ".join(f"{name} {count}" for name, count in sorted(totals["faults"].items()))
    yield "faults", f"{sum(totals['faults'].values())}: {faults}"
    yield "processes that ended by themselves", ", ".join(totals["crashed"]) or "none"
    lake = ", ".join(f"{word} {count:,}" for word, count in totals["lake"].items())
    yield "lake", lake or "not looked at"
    yield "memory, MB per hour", _slopes(totals["slopes_mb_h"])
    # None of their processes has lived long enough, so nothing of them is judged.
    known = {process.partition(" ")[0] for process in totals["slopes_mb_h"]}
    unknown = [name for name in totals["subjects"] if name not in known]
    yield "memory not judged of", ", ".join(unknown) or "none"
    yield "not flat", "; ".join(totals["growing"]) or "nothing"
    cores = ", ".join(f"{name} {each / seconds:.2f}" for name, each in totals["cpu_s"].items())
    yield "cores in use", cores


def _slopes(slopes: Mapping[str, tuple[float, float]]) -> str:
    """The steepest slopes, each with its lower bound."""
    steepest = sorted(slopes.items(), key=lambda each: -each[1][0])[:_SHOWN]
    shown = ", ".join(
        f"{name} {slope:+.2f} (at least {low:+.2f})" for name, (slope, low) in steepest
    )
    return f"{len(slopes)} processes, the steepest: {shown}" if slopes else "not known"
