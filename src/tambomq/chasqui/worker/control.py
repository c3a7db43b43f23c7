"""The controls of a worker: stop, pause, counters and health, usable from any thread.

All of them also work before `Worker.run` has started and after it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tambomq.chasqui.job import check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.options import RunOptions
from tambomq.chasqui.worker.fetcher import Fetcher
from tambomq.chasqui.worker.in_flight import EntryLease, InFlight
from tambomq.chasqui.worker.settlement import WorkerStats
from tambomq.chasqui.worker.settler import Settler
from tambomq.runtime.observer import RunObserver
from tambomq.store.endpoint import Endpoint


class WorkerControl:
    """The part of `Worker` that other tasks, threads and signal handlers use."""

    observer: RunObserver | None
    """Called at the start and end of each run; set it before `run`. See `runtime/observer.py`."""
    grace_s: float
    """How long `run` waits for running handlers after `stop`."""
    on_consumer: Callable[[EntryLease, bool], None] | None
    """Called on the event loop with true when a consumer is about to read, and with false when it
    has left its group with nothing pending. Not where *consumer_id* was given: others may have the
    same id. Set it before `run`."""
    _consumer_id: str | None
    _endpoint: Endpoint
    _run_options: RunOptions

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fetcher: Fetcher | None = None
        self._in_flight: InFlight | None = None
        self._settler: Settler | None = None
        self._closed, self._fetching_paused = False, False
        self.observer, self.on_consumer = None, None
        self.stats = WorkerStats()
        """Counters since this object was made."""

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._keys.queue

    @property
    def endpoint(self) -> Endpoint:
        """The server."""
        return self._endpoint

    @property
    def concurrency(self) -> int:
        """Jobs that run at a time; set it before `run`."""
        return self._run_options.concurrency

    @concurrency.setter
    def concurrency(self, jobs: int) -> None:
        jobs = max(1, check_whole("concurrency", jobs, 100_000))
        self._run_options = msgspec.structs.replace(self._run_options, concurrency=jobs)

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._running is not None and not self._running.done()

    @property
    def is_closed(self) -> bool:
        """Whether `close` or `stop` was called."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """Jobs that this worker holds: queued for a handler, running, or not settled yet."""
        return 0 if self._in_flight is None else len(self._in_flight.entries)

    @property
    def last_fetch_at(self) -> float | None:
        """When Redis last answered a read, by `time.monotonic`; `None` before the first answer.

        While all handlers are busy, or the queue is paused, nothing is read: see `is_consuming`.
        """
        return None if self._fetcher is None else self._fetcher.last_fetch_at

    @property
    def is_consuming(self) -> bool:
        """Whether this worker fetches jobs, or has a reason not to: use it as a health check.

        False before the first answer, while Redis does not answer, while it refuses to settle
        jobs (an ACL, a changed password), and after `close`. True while there is a reason not to
        read: all handlers are busy, the rate limit is reached, or reading is paused.
        """
        if not self.is_running or self._fetcher is None or self._settler is None:
            return False
        return self._fetcher.is_consuming and not self._settler.is_refused

    def stop(self) -> None:
        """Make `run` end: fetch nothing more, finish what runs. From any thread."""
        self._closed = True
        if self._fetcher is not None:
            self._on_loop(self._fetcher.stop)

    async def close(self) -> None:
        """The same as `stop`, as a coroutine: to wait for the end, await `run`."""
        self.stop()

    def pause_fetching(self) -> None:
        """Read no more jobs, for as long as this worker runs; finish those that it has read.

        Unlike after `stop`, `run` goes on, and so do the leaders. From any thread.
        """
        self._fetching_paused = True
        if self._fetcher is not None:
            self._on_loop(self._fetcher.pause)

    def _report_consumer(self, lease: EntryLease, *, reads: bool) -> None:
        if self.on_consumer is not None and self._consumer_id is None:
            self.on_consumer(lease, reads)

    def _on_loop(self, act: Callable[[], None]) -> None:
        """Call *act* on the worker's loop."""
        if self._loop is not None:
            # The loop may have ended meanwhile; then nothing is left to do.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(act)
