"""Deadlines, backoff and retry budgets on the monotonic clock, and the time of day.

RSMQ's messages carry the time of the Redis server (`TIME`, inside the scripts). ChasquiMQ's jobs
carry that of producers and workers, as its protocol says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

LONGEST_DELAY_S: Final = 2.0
"""Between two retries, unless the caller says otherwise."""


class Deadline:
    """A moment *after_s* seconds from now."""

    __slots__ = ("_at",)

    def __init__(self, after_s: float) -> None:
        self._at = time.monotonic() + after_s

    @property
    def left_s(self) -> float:
        """Seconds until then; never negative."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._at


def backoff_delays(first_s: float = 0.02, longest_s: float = LONGEST_DELAY_S) -> Iterator[float]:
    """Yield exponential backoff delays in seconds, each between half and all of its limit.

    The limit doubles up to *longest_s*. The jitter keeps a thousand clients that lost the same
    server from reconnecting in the same millisecond.
    """
    limit = first_s
    while True:
        yield limit * random.uniform(0.5, 1.0)
        limit = min(limit * 2, longest_s)


class RetryBudget:
    """Retries with backoff for *total_s* seconds."""

    __slots__ = ("_deadline", "_delays")

    def __init__(self, total_s: float, longest_s: float = LONGEST_DELAY_S) -> None:
        """Wait up to *longest_s* before each retry."""
        self._deadline, self._delays = Deadline(total_s), backoff_delays(longest_s=longest_s)

    @property
    def is_exhausted(self) -> bool:
        """Whether to give up."""
        return self._deadline.passed

    def next_delay_s(self) -> float:
        """Return the seconds to wait before the next try."""
        return min(next(self._delays), self._deadline.left_s)


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
