"""How long runs took and jobs waited, as events say it, and histograms of that. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import msgspec

from tambomq.chasqui.job import QueueEvent
from tambomq.ids import ulid_ms

ENDED: Final = ("completed", "failed")
BOUNDS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 1800.0)
"""Upper bounds of the buckets; one without a bound follows. Each is a series of each queue."""

EventId = tuple[int, int]
Timed = tuple[EventId, float]
"""The event that says it, and how many seconds."""


class TimeBuckets(msgspec.Struct, frozen=True):
    """How many times fell into each bucket, and their sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    """Not cumulative: those up to a bound and above the one before."""
    sum_s: float = 0.0

    def plus(self, seconds: Iterable[float]) -> TimeBuckets:
        """Return these buckets with more times."""
        counts, sum_s = list(self.counts), self.sum_s
        for each in seconds:
            counts[bisect_left(BOUNDS_S, each)] += 1
            sum_s += each
        return TimeBuckets(tuple(counts), sum_s)

    def merged(self, other: TimeBuckets) -> TimeBuckets:
        """Return the sum of both."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return TimeBuckets(counts, self.sum_s + other.sum_s)


def event_id(event: QueueEvent) -> EventId:
    """Return the time (ms) and number of the entry of *event*; zeros if it is damaged."""
    time, _, number = event.event_id.partition("-")
    return (int(time), int(number)) if time.isdigit() and number.isdigit() else (0, 0)


def run_times(events: Iterable[QueueEvent]) -> list[Timed]:
    """Return how long each run took that has ended."""
    return [
        (event_id(event), took / 1e6)
        for event in events
        if event.name in ENDED and isinstance(took := event.fields.get("duration_us"), int)
    ]


def wait_times(events: Iterable[QueueEvent]) -> list[Timed]:
    """Return how long the job of each run that began could have run before.

    That is known of jobs that became waiting within the sample, and of the first run of those
    with an id that has its time in it.
    """
    since: dict[str | None, int] = {}
    delayed: set[str | None] = set()
    waits = []
    for event in sorted(events, key=event_id):
        at = event_id(event)
        if event.name == "waiting":
            since[event.job_id] = at[0]
        elif event.name in ("delayed", "retry-scheduled"):
            delayed.add(event.job_id)
        elif event.name == "active":
            began = since.pop(event.job_id, None)
            if began is None and event.fields.get("attempt") == 1 and event.job_id not in delayed:
                began = ulid_ms(event.job_id or "")
            if began is not None:
                waits.append((at, max(0, at[0] - began) / 1000))
    return waits
