"""The figures of a report as plain values, for the page, the tables and the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

STEPS_S: Final = (10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
MAX_POINTS: Final = 120


class Spread(msgspec.Struct, frozen=True):
    """Percentiles of a duration, in milliseconds; `None` without data."""

    p50: int | None = None
    p95: int | None = None
    p99: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """Counts of events."""

    entered: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0


class Point(msgspec.Struct, frozen=True):
    """One step of the time axis."""

    at_ms: int
    counts: Counts = Counts()
    backlog: int = 0
    """At its end."""
    wait: Spread = Spread()
    run: Spread = Spread()


class FigureRow(msgspec.Struct, frozen=True):
    """A queue, or the jobs of one name in it."""

    protocol: str
    queue: str
    name: str
    counts: Counts
    backlog: int
    oldest_age_s: int | None
    """`None` if nothing waits, or the enqueue time is unknown."""
    wait: Spread
    run: Spread


class Reason(msgspec.Struct, frozen=True):
    """A reason for dead letters, and their number."""

    reason: str
    error: str
    dead: int
    queue: str
    """The queue with most of them."""


class UnfollowedQueue(msgspec.Struct, frozen=True):
    """A queue of which the lake has only the depth: it has no journal."""

    protocol: str
    queue: str
    backlog: int


class Figures(msgspec.Struct, frozen=True):
    """A report."""

    lake: str
    made_ms: int
    from_ms: int
    until_ms: int
    step_s: int
    totals: Counts
    backlog: int
    wait: Spread
    run: Spread
    points: list[Point]
    lines: list[FigureRow]
    """By protocol, queue and name; the busiest first."""
    slowest: list[FigureRow]
    """The rows with the longest runs."""
    reasons: list[Reason]
    counted_ms: int | None = None
    """When the queues were last counted; `None`: the backlog is computed from events."""
    unfollowed: list[UnfollowedQueue] = []


def with_depths(
    lines: Iterable[FigureRow], depths: Mapping[tuple[str, str], int]
) -> list[FigureRow]:
    """Return *lines* whose backlogs add up to what is in each queue by *depths*.

    A surplus over the events goes to a row without a name; a deficit is taken from the row
    without a name first, then from the largest.
    """
    by_queue: dict[tuple[str, str], list[FigureRow]] = {}
    for line in lines:
        by_queue.setdefault((line.protocol, line.queue), []).append(line)
    for place, depth in depths.items():
        mine = by_queue.get(place, [])
        more = depth - sum(line.backlog for line in mine)
        if more > 0 and not any(not line.name for line in mine):
            mine = [*mine, FigureRow(*place, "", Counts(), 0, None, Spread(), Spread())]
        found = []
        for line in sorted(mine, key=lambda each: (each.name != "", -each.backlog)):
            change = max(more, -line.backlog) if more < 0 or not line.name else 0
            more -= change
            found.append(msgspec.structs.replace(line, backlog=line.backlog + change))
        by_queue[place] = [line for line in found if line.backlog or line.counts != Counts()]
    return [line for found in by_queue.values() for line in found]


def order(line: FigureRow) -> tuple[int, str, str]:
    """Return the sort key that puts the busiest row first."""
    return -line.counts.entered, line.protocol, line.queue


def step_of(from_ms: int, until_ms: int) -> int:
    """Return the length of a step, in seconds, for up to `MAX_POINTS` points."""
    length_s = max(0, until_ms - from_ms) / 1000
    for step in STEPS_S:
        if length_s / step <= MAX_POINTS:
            return step
    return STEPS_S[-1] * (1 + int(length_s / STEPS_S[-1] / MAX_POINTS))


def steps(from_ms: int, until_ms: int, step_s: int) -> list[int]:
    """Return the start of each step that overlaps the time, in milliseconds."""
    step = step_s * 1000
    return list(range(from_ms - from_ms % step, max(until_ms, from_ms + 1), step))
