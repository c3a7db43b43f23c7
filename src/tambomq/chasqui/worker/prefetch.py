"""Backpressure for the fetcher: how many stream entries it may fetch now.

The window is the number of free runners, plus as many jobs as the handlers will finish within the
next few milliseconds. So fast handlers never wait for a read, and nothing is queued behind a slow
handler that another worker could run.

Runs that finish and entries that are released open the window; both wake the fetcher.
"""

from __future__ import annotations

import asyncio
import time

AHEAD_S = 0.01
"""Fetch as many jobs ahead as the handlers finish in this time."""
MAX_AHEAD = 500
MAX_UNSETTLED = 2000
"""Jobs that have run but are not settled yet, as when Redis is slow: beyond this, fetch nothing."""
STALLED_AFTER_S = 1.0


class PrefetchWindow:
    """Computes how many entries to fetch (`size`), from the rate at which runs finish.

    It also wakes the fetcher when the answer may have changed.
    """

    def __init__(self, concurrency: int, max_count: int) -> None:
        """Allow at most *max_count* entries in one read."""
        self._concurrency, self._max_count = concurrency, max_count
        self._wakeup = asyncio.Event()
        self._finished, self._rate = 0, 0.0
        self._since = self._finished_at = time.monotonic()

    def on_finished(self) -> None:
        """Count a run that has finished, and wake the fetcher."""
        self._finished += 1
        self._finished_at = time.monotonic()
        if not self._wakeup.is_set():
            self._wakeup.set()

    def wake(self) -> None:
        """Make the fetcher look again: entries were released, or the queue's state changed."""
        self._wakeup.set()

    async def changed(self) -> None:
        """Wait for the next `on_finished` or `wake`."""
        self._wakeup.clear()
        await self._wakeup.wait()

    def size(self, *, queued: int, running: int, in_flight: int) -> int:
        """Return how many entries to ask for; 0 means wait. Measures the handlers' rate.

        *in_flight* counts all entries of this worker: queued, running, or not settled yet.
        """
        now = time.monotonic()
        if (elapsed := now - self._since) > AHEAD_S / 4:
            self._rate = self._finished / elapsed
            self._finished, self._since = 0, now
        allowed = self._concurrency + min(MAX_AHEAD, int(self._rate * AHEAD_S))
        busy = queued + running
        free = allowed - busy
        # Do not read in small pieces: while jobs are queued, wait until half of the window is free.
        if busy > self._concurrency and free < allowed // 2:
            return 0
        unsettled = in_flight - busy
        return max(0, min(free, self._max_count, MAX_UNSETTLED - unsettled))

    @property
    def is_stalled(self) -> bool:
        """Whether no run has finished for a while."""
        return time.monotonic() - self._finished_at > STALLED_AFTER_S
