"""Percentiles of how long runs took and messages waited, by minute, from a sample of events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Final

from tambomq.chasqui.job import QueueEvent
from tambomq.console.model import Series
from tambomq.console.read.history import MINUTE_MS, Ring
from tambomq.console.read.queues.event_times import Timed, run_times, wait_times

PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


class QueueLatencies:
    """The last hour of one queue, as far as its page was looked at."""

    def __init__(self) -> None:
        self._runs = {name: Ring() for name in PERCENTILES}
        self._waits = {name: Ring() for name in PERCENTILES}

    def record(self, events: Sequence[QueueEvent]) -> None:
        """Add a sample of events, in any order."""
        _put(self._runs, run_times(events))
        _put(self._waits, wait_times(events))

    def run_times(self, at_ms: int) -> Series:
        """Return the percentiles of how long a run took."""
        return _series(self._runs, at_ms)

    def wait_times(self, at_ms: int) -> Series:
        """Return the percentiles of how long a job could run until it did."""
        return _series(self._waits, at_ms)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of *ordered* values that *share* of them do not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _put(rings: Mapping[str, Ring], timed: Iterable[Timed]) -> None:
    minutes: defaultdict[int, list[float]] = defaultdict(list)
    for (at_ms, _), seconds in timed:
        minutes[at_ms // MINUTE_MS].append(seconds)
    for minute, values in minutes.items():
        ordered = sorted(values)
        for name, share in PERCENTILES.items():
            rings[name].put(minute * MINUTE_MS, percentile(ordered, share))


def _series(rings: Mapping[str, Ring], at_ms: int) -> Series:
    times = rings["p50"].times_ms(at_ms)
    return Series(times_ms=times, values={name: ring.values(at_ms) for name, ring in rings.items()})
