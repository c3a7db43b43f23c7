"""Rates of a queue: means over the last seconds, from counters that were sampled."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final

import msgspec

from tambomq.console.read.queues.queue_sample import QueueSample

WINDOW_S: Final = 10.0
LONGEST_GAP_S: Final = 30.0
"""Samples further apart than this say nothing about now: nobody looked meanwhile."""

Counts = tuple[int | None, ...]


class Rates(msgspec.Struct, frozen=True):
    """Messages per second; `None` if the protocol does not count them or it is too early."""

    entered: float | None = None
    left: float | None = None
    failed: float | None = None
    died: float | None = None
    copies: int = 1
    """How many consumers each message goes to: as many leave for one that has entered."""

    @property
    def done(self) -> float | None:
        """Messages that leave, each counted once."""
        return None if self.left is None else self.left / max(1, self.copies)

    @property
    def grows_per_s(self) -> float | None:
        """How much faster messages enter than leave; `None` if they do not."""
        if self.entered is None or self.left is None:
            return None
        entered = self.entered * self.copies
        return entered - self.left if entered > self.left else None

    def drain_s(self, depth: int) -> float | None:
        """How long until *depth* messages are gone; `None` if it grows, stands or is empty."""
        if self.entered is None or self.left is None or not depth:
            return None
        drains = self.left - self.entered * self.copies
        return depth / drains if drains > 0 else None


class RateWindow:
    """The samples of one queue that its rates are made of."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counts]] = deque()

    def add(self, at_s: float, sample: QueueSample) -> Rates:
        """Add a sample taken at *at_s*, by a monotonic clock, and return the present rates."""
        samples = self._samples
        if samples and at_s - samples[-1][0] > LONGEST_GAP_S:
            samples.clear()
        samples.append((at_s, (sample.entered, sample.left, sample.died)))
        # Keep one sample from before the window: the rate covers at least all of it.
        while len(samples) > 2 and samples[1][0] <= at_s - WINDOW_S:  # noqa: PLR2004  (first, last)
            samples.popleft()
        entered, left, died = map(self._rate, range(3))
        return Rates(entered, left, sample.failed_per_s, died, sample.copies)

    def _rate(self, place: int) -> float | None:
        """Return the growth per second; a counter that fell has begun anew."""
        span_s = self._samples[-1][0] - self._samples[0][0]
        values = [counts[place] for _, counts in self._samples]
        if span_s <= 0 or values[-1] is None:
            return None
        known = [value for value in values if value is not None]
        grown = sum(max(0, b - a) for a, b in pairwise(known))
        return grown / span_s
