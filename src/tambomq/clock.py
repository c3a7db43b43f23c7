"""Time left, on a clock that never jumps; and the time of day, which may.

The time of RSMQ's messages is Redis's own (`TIME`, inside the scripts). ChasquiMQ's
jobs have the time of those who add and run them, as its protocol says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import lru_cache


class Deadline:
    """A moment that *after_s* seconds from now will have come."""

    __slots__ = ("_at",)

    def __init__(self, after_s: float) -> None:
        self._at = time.monotonic() + after_s

    @property
    def left_s(self) -> float:
        """Seconds until then; never negative."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it has come."""
        return time.monotonic() >= self._at


def pauses(first_s: float = 0.02, longest_s: float = 2.0) -> Iterator[float]:
    """Yield ever longer pauses, each drawn between half and the whole of its limit.

    The limit doubles each time. The draw keeps a thousand clients that lost the
    same server from coming back in the same millisecond.
    """
    limit = first_s
    while True:
        yield limit * random.uniform(0.5, 1.0)
        limit = min(limit * 2, longest_s)


class Patience:
    """How long to go on trying: pauses that grow, up to a deadline."""

    __slots__ = ("_deadline", "_pauses")

    def __init__(self, total_s: float) -> None:
        self._deadline, self._pauses = Deadline(total_s), pauses()

    @property
    def over(self) -> bool:
        """Whether it is time to give up."""
        return self._deadline.passed

    def next_pause_s(self) -> float:
        """Return how long to wait before the next try."""
        return min(next(self._pauses), self._deadline.left_s)


def now_ms() -> int:
    """Return the milliseconds since 1970, by this machine's clock."""
    return time.time_ns() // 1_000_000


@lru_cache(maxsize=2)
def unix_date(now_s: int) -> str:
    """Return a second as ``date`` writes it: ``Tue Jul 18 10:15:04 CEST 2017``."""
    return time.strftime("%a %b %e %H:%M:%S %Z %Y", time.localtime(now_s))


def now_s() -> int:
    """Return the seconds since 1970, by this machine's clock."""
    return int(time.time())
