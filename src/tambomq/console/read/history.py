"""The last hour, in rings of fixed size: what nobody looked at is missing, and stays so."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final

from tambomq.console.model import Series
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.rates import Rates

MINUTE_MS: Final = 60_000
MINUTES: Final = 60
FINE_MS: Final = 10_000
"""The step of the series over all queues."""
YOUNG_MS: Final = MINUTES * FINE_MS
"""A shorter history has fine steps: by the minute it would say nothing."""
LINES: Final = ("in", "out", "failed")


class Ring:
    """One number for each of the last *size* steps: the last that was put, or a mean."""

    __slots__ = ("_counts", "_size", "_step_ms", "_steps", "_sums")

    def __init__(self, size: int = MINUTES, step_ms: int = MINUTE_MS) -> None:
        self._size, self._step_ms = size, step_ms
        self._steps = array("q", [-1]) * size
        self._sums = array("d", [0.0]) * size
        self._counts = array("l", [0]) * size

    def put(self, at_ms: int, value: float) -> None:
        """Make *value* the number of the present step."""
        place = self._place(at_ms)
        self._sums[place], self._counts[place] = value, 1

    def add(self, at_ms: int, value: float) -> None:
        """Let *value* take part in the mean of the present step."""
        place = self._place(at_ms)
        self._sums[place] += value
        self._counts[place] += 1

    def values(self, at_ms: int) -> list[float | None]:
        """Return the numbers up to now, oldest first; `None` where there is none."""
        last = at_ms // self._step_ms
        return [self._value(step) for step in range(last - self._size + 1, last + 1)]

    def times_ms(self, at_ms: int) -> list[int]:
        """Return when each step of `values` began."""
        last = at_ms // self._step_ms
        steps = range(last - self._size + 1, last + 1)
        return [step * self._step_ms for step in steps]

    def _place(self, at_ms: int) -> int:
        step = at_ms // self._step_ms
        place = step % self._size
        if self._steps[place] != step:
            self._steps[place], self._sums[place], self._counts[place] = step, 0.0, 0
        return place

    def _value(self, step: int) -> float | None:
        place = step % self._size
        if self._steps[place] != step or not self._counts[place]:
            return None
        return self._sums[place] / self._counts[place]


class QueueHistory:
    """The last hour of one queue, a number a minute; and its last ten minutes in finer steps."""

    def __init__(self) -> None:
        self.backlog, self.deaths = Ring(), Ring()
        self.lines = {name: Ring() for name in LINES}
        self._fine_backlog = Ring(step_ms=FINE_MS)
        self._fine_lines = {name: Ring(step_ms=FINE_MS) for name in LINES}
        self._began_ms: int | None = None
        self._died: int | None = None

    def record(self, at_ms: int, sample: QueueSample, rates: Rates) -> None:
        """Add one refresh."""
        self._began_ms = self._began_ms or at_ms
        self.backlog.put(at_ms, sample.depth)
        self._fine_backlog.put(at_ms, sample.depth)
        for name, rate in zip(LINES, (rates.entered, rates.left, rates.failed), strict=True):
            if rate is not None:
                self.lines[name].add(at_ms, rate)
                self._fine_lines[name].add(at_ms, rate)
        if sample.died is not None:
            if self._died is not None and sample.died > self._died:
                before = self.deaths.values(at_ms)[-1] or 0.0
                self.deaths.put(at_ms, before + sample.died - self._died)
            self._died = sample.died

    def died_within(self, at_ms: int, minutes: int) -> int:
        """Return how many messages died in the last *minutes*, as far as it was looked."""
        return int(sum(count or 0 for count in self.deaths.values(at_ms)[-minutes:]))

    def depths(self, at_ms: int) -> list[int | None]:
        """Return the depth of each of the last 60 minutes, oldest first."""
        return _whole(self.backlog.values(at_ms))

    def fine_depths(self, at_ms: int) -> list[int | None]:
        """Return the depth of each step of the last ten minutes, oldest first."""
        return _whole(self._fine_backlog.values(at_ms))

    def series(self, at_ms: int) -> Series:
        """Return ``in``, ``out`` and ``failed`` per second, in fine steps for ten minutes."""
        is_young = self._began_ms is not None and at_ms - self._began_ms < YOUNG_MS
        return _series(self._fine_lines if is_young else self.lines, at_ms)


class History:
    """The last hour of each queue, and of all together in finer steps."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueHistory] = {}
        self._totals = {name: Ring(MINUTES * MINUTE_MS // FINE_MS, FINE_MS) for name in LINES}

    def record(
        self, at_ms: int, queues: Mapping[str, tuple[QueueSample, Rates]]
    ) -> Mapping[str, QueueHistory]:
        """Add one refresh of all *queues*, and forget those that are no longer there."""
        known = self._queues
        self._queues = {queue: known.get(queue) or QueueHistory() for queue in queues}
        totals = dict.fromkeys(LINES, 0.0)
        measured = False
        for queue, (sample, rates) in queues.items():
            self._queues[queue].record(at_ms, sample, rates)
            measured = measured or rates.entered is not None
            for name, rate in zip(LINES, (rates.entered, rates.done, rates.failed), strict=True):
                totals[name] += rate or 0.0
        for name, total in totals.items() if measured else ():
            self._totals[name].add(at_ms, total)
        return self._queues

    def of(self, queue: str) -> QueueHistory:
        """Return the history of *queue*; an empty one if it was never seen."""
        return self._queues.get(queue) or QueueHistory()

    def totals(self, at_ms: int) -> Series:
        """Return ``in``, ``out`` and ``failed`` per second of all queues."""
        return _series(self._totals, at_ms)

    def died_within_hour(self, at_ms: int) -> int:
        """Return how many messages died in the last hour, as far as it was looked."""
        return sum(queue.died_within(at_ms, MINUTES) for queue in self._queues.values())


def _whole(values: list[float | None]) -> list[int | None]:
    return [None if value is None else int(value) for value in values]


def _series(lines: Mapping[str, Ring], at_ms: int) -> Series:
    times = next(iter(lines.values())).times_ms(at_ms)
    return Series(times_ms=times, values={name: ring.values(at_ms) for name, ring in lines.items()})
