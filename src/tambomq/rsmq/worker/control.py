"""The controls of an RSMQ worker: stop, pause, counters and health, usable from any thread.

All of them also work before `RsmqWorker.run` has started and after it has ended.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from tambomq.rsmq.longpoll import POLL_EVERY_S
from tambomq.rsmq.model import check_count
from tambomq.rsmq.worker.settler import Settler, WorkerStats
from tambomq.runtime.observer import RunObserver
from tambomq.store.aio import AsyncStore
from tambomq.store.aio_pubsub import Subscription
from tambomq.store.endpoint import Endpoint

# A worker whose last receive was answered this long ago is not consuming (`is_consuming`).
MAX_SILENCE_S = POLL_EVERY_S + 10.0


class WorkerControl:
    """The part of `RsmqWorker` that other tasks, threads and signal handlers use."""

    observer: RunObserver | None
    """Called at the start and end of each run; set it before `run`. See `runtime/observer.py`."""
    grace_s: float
    """How long `run` waits for running handlers after `stop`."""
    _store: AsyncStore
    _concurrency: int

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscription: Subscription | None = None
        self._settling: Settler | None = None
        self._wakeup = asyncio.Event()
        self._busy = 0
        """Messages that wait for a runner, or run."""
        self._running, self._stopping, self._fetching_paused = False, False, False
        self._waits = False
        """Whether there is no need to receive: all handlers are busy, or receiving is paused."""
        self._last_fetch_at: float | None = None
        self.observer = None
        self.stats = WorkerStats()
        """Counters since the worker was created."""

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.queue

    @property
    def endpoint(self) -> Endpoint:
        """The server."""
        return self._store.endpoint

    @property
    def concurrency(self) -> int:
        """Messages that are handled at a time; set it before `run`."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, messages: int) -> None:
        self._concurrency = check_count(messages)

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._running

    @property
    def is_closed(self) -> bool:
        """Whether `stop` or `close` was called."""
        return self._stopping

    @property
    def in_flight(self) -> int:
        """Messages that this worker holds: queued for a handler, running, or not settled yet."""
        return self._busy + (0 if self._settling is None else self._settling.unsettled)

    @property
    def last_fetch_at(self) -> float | None:
        """When Redis last answered a receive, by `time.monotonic`; `None` before the first answer.

        While all handlers are busy nothing is received: see `is_consuming`.
        """
        return self._last_fetch_at

    @property
    def is_consuming(self) -> bool:
        """Whether this worker receives messages, or has a reason not to: use it as a health check.

        False before the first answer, while Redis does not answer, and after `stop`. True while
        there is a reason not to receive: all handlers are busy, or receiving is paused.
        """
        if not self._running or self._stopping or self._last_fetch_at is None:
            return False
        return self._waits or time.monotonic() - self._last_fetch_at < MAX_SILENCE_S

    def stop(self) -> None:
        """End `run`: receive nothing more, finish running handlers. Callable from any thread."""
        self._stopping = True
        self._wake_from_outside()

    async def close(self) -> None:
        """End `run`: receive nothing more, finish running handlers. From any task or thread."""
        self.stop()

    def pause_fetching(self) -> None:
        """Receive no more messages, for as long as this worker runs; finish those that it has.

        Unlike after `stop`, `run` goes on. From any thread.
        """
        self._fetching_paused = True
        self._wake_from_outside()

    def _wake_from_outside(self) -> None:
        if self._loop is not None:
            # The loop may have closed meanwhile; then there is nothing to wake.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._wakeup.set()
        if self._subscription is not None:
            self._subscription.notify()
