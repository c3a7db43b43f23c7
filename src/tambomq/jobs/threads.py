"""The threads in which plain functions run.

Python cannot stop a thread. A call that timed out, or whose job was cancelled, is abandoned: nobody
waits for it any more, but it occupies its thread until it returns.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from tambomq.errors import JobTimedOut
from tambomq.failures import from_elsewhere, of_thread

log = logging.getLogger(__name__)


class JobThreads:
    """Calls functions in at most *size* threads of one worker, started on demand.

    They are daemon threads: a process whose functions hang must be able to exit.
    """

    def __init__(self, queue: str, size: int) -> None:
        """Belong to the running event loop."""
        self._queue, self._size, self._loop = queue, size, asyncio.get_running_loop()
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._threads = self._busy = 0
        self._free = asyncio.Semaphore(size)
        self._abandoned: dict[_ThreadCall, float] = {}
        self.stuck: asyncio.Future[dict[str, str]] = self._loop.create_future()
        """Set once abandoned calls occupy all threads, and have had as long again to end: job ids
        by thread name."""

    @property
    def abandoned(self) -> int:
        """How many calls are abandoned and still run."""
        return len(self._abandoned)

    def still_runs(self, job_id: str) -> bool:
        """Whether an abandoned call of this job still runs."""
        return any(call.job_id == job_id for call in self._abandoned)

    async def call(self, job_id: str, function: Callable[[], Any], timeout_s: float | None) -> Any:
        """Return what *function* returns; raise what it raises, or `JobTimedOut`.

        The time-out counts from when a thread is free. If this is cancelled, the call is abandoned.
        """
        await self._free.acquire()
        call = _ThreadCall(job_id, function, copy_context(), self._loop.create_future())
        self._busy += 1
        call.ended.add_done_callback(lambda _: self._on_ended(call))
        if self._busy > self._threads:
            self._start_thread()
        self._calls.put(call)
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                # Shielded: the thread still sets the future.
                return await asyncio.shield(call.ended)
        except (TimeoutError, asyncio.CancelledError):
            if call.ended.done():
                if scope.expired():
                    # It has ended in the same turn of the loop: what it returned counts.
                    return call.ended.result()
                raise
            self._abandon(call, timeout_s, "timed out" if scope.expired() else "was cancelled")
            if scope.expired():
                raise JobTimedOut(timeout_s or 0).with_traceback(call.traceback) from None
            raise

    def close(self) -> None:
        """End idle threads at once, and busy ones when their function returns."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _abandon(self, call: _ThreadCall, timeout_s: float | None, why: str) -> None:
        self._abandoned[call] = timeout_s or 0
        log.warning(
            "job %r of queue %r %s: its function runs on in thread %s, which Python cannot stop "
            "(%d of %d threads are occupied like this)",
            *(call.job_id, self._queue, why, call.thread, len(self._abandoned), self._size),
            extra={"queue": self._queue, "job": call.job_id},
        )
        if len(self._abandoned) == self._size:
            # As much time again as the slowest had: they may be about to end.
            self._loop.call_later(max(self._abandoned.values()), self._check_stuck)

    def _check_stuck(self) -> None:
        if len(self._abandoned) == self._size and not self.stuck.done():
            self.stuck.set_result({call.thread: call.job_id for call in self._abandoned})

    def _start_thread(self) -> None:
        self._threads += 1
        name = f"job-{self._queue}-{self._threads}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.thread, call.ident = threading.current_thread().name, threading.get_ident()
            error, value = call.outcome()
            # The loop may have closed meanwhile; then nothing waits for it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_complete, call.ended, error, value)

    def _on_ended(self, call: _ThreadCall) -> None:
        self._busy -= 1
        self._free.release()
        # Mark the error as retrieved: nobody waits for that of an abandoned call.
        if not call.ended.cancelled():
            call.ended.exception()
        if self._abandoned.pop(call, None) is not None:
            log.info(
                "the function of abandoned job %r of queue %r has ended: thread %s is free again",
                *(call.job_id, self._queue, call.thread),
                extra={"queue": self._queue, "job": call.job_id},
            )


class _ThreadCall:
    """One call: for which job, in which thread, and how it ended."""

    __slots__ = ("_context", "_function", "ended", "ident", "job_id", "thread")

    def __init__(
        self,
        job_id: str,
        function: Callable[[], Any],
        context: Context,
        ended: asyncio.Future[Any],
    ) -> None:
        self.job_id, self._function, self._context = job_id, function, context
        self.ended, self.thread, self.ident = ended, "(not begun)", 0

    @property
    def traceback(self) -> TracebackType | None:
        """Where the function is now."""
        return of_thread(self.ident, _ThreadCall.outcome.__code__)

    def outcome(self) -> tuple[BaseException | None, Any]:
        """Call the function, in the context of the run."""
        try:
            return None, self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  (raised again where the call is awaited)
            return from_elsewhere(error), None


def _complete(future: asyncio.Future[Any], error: BaseException | None, value: Any) -> None:
    if not future.done():
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
