"""Threads that run plain handlers. A call that has timed out keeps its thread until it ends.

Python cannot stop a thread, so a handler that hangs occupies its thread for good. The worker takes
no message for it; when every thread is occupied like that, `stuck` says so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from queue import SimpleQueue
from typing import Any

from tambomq.rsmq.model import Message


class HandlerThreads:
    """Calls *handler* in at most *size* threads; a call that takes *timeout_s* has failed.

    With a time-out they are daemon threads: a process whose handlers hang must be able to end.
    """

    def __init__(
        self, handler: Callable[[Message], Any], size: int, timeout_s: float | None
    ) -> None:
        """Belongs to the event loop that runs; a thread is started when it is needed."""
        self._handler, self._size, self._timeout_s = handler, size, timeout_s
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = self._busy = 0
        self._timed_out: dict[tuple[str, str], _Call] = {}
        self.stuck: asyncio.Future[dict[str, str]] = self._loop.create_future()
        """Set when all threads have been occupied by calls that timed out for *timeout_s*: the
        message id for each thread's name."""

    @property
    def timed_out(self) -> int:
        """How many calls have timed out and not ended yet."""
        return len(self._timed_out)

    async def call(self, message: Message) -> None:
        """Call the handler; raise what it raises, or `TimeoutError`.

        There must be a free thread: the caller has at most *size* calls at once, counting those
        that have timed out and not ended. The time counts from when the handler has begun.
        """
        call = _Call(message, self._loop.create_future(), self._loop.create_future())
        self._busy += 1
        call.ended.add_done_callback(self._finished)
        if self._busy > self._threads:
            self._start_thread()
        self._calls.put(call)
        if self._timeout_s is not None:
            await asyncio.wait((call.begun,))
            await asyncio.wait((call.ended,), timeout=self._timeout_s)
            if not call.ended.done():
                self._timed_out[_key(message)] = call
                if len(self._timed_out) == self._size:
                    self._loop.call_later(self._timeout_s, self._look_if_stuck)
                raise TimeoutError
        # Cancelled, it leaves the future alone, which the thread will set.
        await asyncio.shield(call.ended)

    async def ended(self, message: Message) -> None:
        """Wait until the call of *message* that timed out has ended, if there is one."""
        if (call := self._timed_out.get(_key(message))) is not None:
            await asyncio.wait((call.ended,))
            del self._timed_out[_key(message)]

    def close(self) -> None:
        """Let threads end that have nothing to do; those that run a handler end with it."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _start_thread(self) -> None:
        self._threads += 1
        name, daemon = f"rsmq-handler-{self._threads}", self._timeout_s is not None
        threading.Thread(target=self._run, name=name, daemon=daemon).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            # The loop may have closed meanwhile; then nobody waits for it.
            with suppress(RuntimeError):
                call.thread = threading.current_thread().name
                if self._timeout_s is not None:
                    self._loop.call_soon_threadsafe(_settle, call.begun, None)
                error = self._error_of(call.message)
                self._loop.call_soon_threadsafe(_settle, call.ended, error)

    def _error_of(self, message: Message) -> BaseException | None:
        try:
            self._handler(message)
        except StopIteration as error:
            # No future can carry it: who waits for one would wait for ever.
            stopped = RuntimeError("the handler raised StopIteration")
            stopped.__cause__ = error
            return stopped
        except BaseException as error:  # noqa: BLE001  (raised again where the call is awaited)
            return error
        return None

    def _finished(self, ended: asyncio.Future[None]) -> None:
        self._busy -= 1
        # Nobody may be waiting any more; then its error is nobody's business.
        if not ended.cancelled():
            ended.exception()

    def _look_if_stuck(self) -> None:
        if len(self._timed_out) == self._size and not self.stuck.done():
            self.stuck.set_result({call.thread: id for (id, _), call in self._timed_out.items()})


class _Call:
    """One call of the handler: its message, its thread, and what the loop is told of it."""

    __slots__ = ("begun", "ended", "message", "thread")

    def __init__(
        self, message: Message, begun: asyncio.Future[None], ended: asyncio.Future[None]
    ) -> None:
        self.message, self.begun, self.ended, self.thread = message, begun, ended, ""


def is_async(handler: Callable[[Message], Any]) -> bool:
    """Whether *handler* is to be awaited; an object with an async ``__call__`` is."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _key(message: Message) -> tuple[str, str]:
    # The same message may come again while its last call has not ended.
    return message.id, message.receipt


def _settle(future: asyncio.Future[None], error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
