"""The thread pool for handlers that are plain functions.

Python cannot stop a thread, so a handler that has timed out occupies its thread until it returns.
The worker receives no message for such a thread; once all threads are occupied, `stuck` is set.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from queue import SimpleQueue
from typing import Any

from tambomq.failures import from_elsewhere, of_thread
from tambomq.rsmq.model import Message


class HandlerThreads:
    """Calls *handler* in at most *size* threads; a call that takes *timeout_s* has failed.

    With a timeout they are daemon threads: a process whose handlers hang must be able to exit.
    """

    def __init__(
        self, handler: Callable[[Message], Any], size: int, timeout_s: float | None
    ) -> None:
        """Belong to the running event loop; threads are started on demand."""
        self._handler, self._size, self._timeout_s = handler, size, timeout_s
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_HandlerCall | None] = SimpleQueue()
        self._threads = self._busy = 0
        self._timed_out: dict[tuple[str, str], _HandlerCall] = {}
        self.stuck: asyncio.Future[dict[str, str]] = self._loop.create_future()
        """Set once calls that timed out have occupied all threads for another *timeout_s*: message
        ids by thread name."""

    @property
    def timed_out(self) -> int:
        """How many calls have timed out and are still running."""
        return len(self._timed_out)

    async def call(self, message: Message) -> None:
        """Call the handler; raise what it raises, or `TimeoutError`.

        The caller makes at most *size* calls at once, counting those that have timed out and
        still run. The timeout counts from when the handler starts.
        """
        call = _HandlerCall(message, self._loop.create_future(), self._loop.create_future())
        self._busy += 1
        call.ended.add_done_callback(self._on_ended)
        if self._busy > self._threads:
            self._start_thread()
        self._calls.put(call)
        if self._timeout_s is not None:
            await asyncio.wait((call.started,))
            await asyncio.wait((call.ended,), timeout=self._timeout_s)
            if not call.ended.done():
                self._timed_out[_key(message)] = call
                if len(self._timed_out) == self._size:
                    self._loop.call_later(self._timeout_s, self._check_stuck)
                frames = of_thread(call.ident, HandlerThreads._run_handler.__code__)
                raise TimeoutError().with_traceback(frames)
        # Shielded: if this call is cancelled, the thread still sets the future.
        await asyncio.shield(call.ended)

    async def wait_ended(self, message: Message) -> None:
        """Wait until the timed-out call of *message* has returned, if there is one."""
        if (call := self._timed_out.get(_key(message))) is not None:
            await asyncio.wait((call.ended,))
            del self._timed_out[_key(message)]

    def close(self) -> None:
        """End idle threads at once, and busy ones when their handler returns."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _start_thread(self) -> None:
        self._threads += 1
        name, daemon = f"rsmq-handler-{self._threads}", self._timeout_s is not None
        threading.Thread(target=self._run, name=name, daemon=daemon).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            # The loop may have closed meanwhile; then nothing waits for the result.
            with suppress(RuntimeError):
                call.thread, call.ident = threading.current_thread().name, threading.get_ident()
                if self._timeout_s is not None:
                    self._loop.call_soon_threadsafe(_complete, call.started, None)
                error = self._run_handler(call.message)
                self._loop.call_soon_threadsafe(_complete, call.ended, error)

    def _run_handler(self, message: Message) -> BaseException | None:
        try:
            self._handler(message)
        except BaseException as error:  # noqa: BLE001  (raised again where the call is awaited)
            return from_elsewhere(error)
        return None

    def _on_ended(self, ended: asyncio.Future[None]) -> None:
        self._busy -= 1
        # Mark the error as retrieved: after a timeout nothing waits for it.
        if not ended.cancelled():
            ended.exception()

    def _check_stuck(self) -> None:
        if len(self._timed_out) == self._size and not self.stuck.done():
            self.stuck.set_result({call.thread: id for (id, _), call in self._timed_out.items()})


class _HandlerCall:
    """One call of the handler: its message, its thread, and futures for its start and end."""

    __slots__ = ("ended", "ident", "message", "started", "thread")

    def __init__(
        self, message: Message, started: asyncio.Future[None], ended: asyncio.Future[None]
    ) -> None:
        self.message, self.started, self.ended = message, started, ended
        self.thread, self.ident = "", 0


def is_async(handler: Callable[[Message], Any]) -> bool:
    """Whether *handler* is a coroutine function, or an object with an async ``__call__``."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _key(message: Message) -> tuple[str, str]:
    # The same message may be received again while its last call still runs.
    return message.id, message.receipt


def _complete(future: asyncio.Future[None], error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
