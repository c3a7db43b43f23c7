"""A time limit that many coroutines share: one timer of the event loop for all of them.

`asyncio.timeout` makes a timer for each; that costs a short coroutine more than itself. All have
the same limit, so that the one that began first ends first, and one timer is enough.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from itertools import takewhile
from typing import Any, TypeVar

T = TypeVar("T")


class _Timed:
    """A coroutine that runs, and whether its time is over."""

    __slots__ = ("deadline", "expired", "task")

    def __init__(self, task: asyncio.Task[Any], deadline: float) -> None:
        self.task, self.deadline, self.expired = task, deadline, False


class TimeLimit:
    """Cancels coroutines that take longer than *limit_s* seconds, in one event loop."""

    def __init__(self, limit_s: float, error: Callable[[], BaseException]) -> None:
        """*error* makes what is raised instead of the cancellation."""
        self._limit_s, self._error = limit_s, error
        self._running: dict[_Timed, None] = {}
        """In the order in which they began."""
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await *coroutine*; if its time is over first, cancel it and raise the error.

        The error has the traceback of the cancellation: it shows where the coroutine was. One
        that catches the cancellation and returns has returned.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (this is a coroutine)
        loop, cancelling = task.get_loop(), task.cancelling()
        timed = _Timed(task, loop.time() + self._limit_s)
        self._running[timed] = None
        if self._timer is None:
            self._timer = loop.call_at(timed.deadline, self._expire, loop)
        try:
            return await coroutine
        except CancelledError as error:
            # Others may have cancelled it too: then theirs counts.
            if timed.expired and task.cancelling() - 1 <= cancelling:
                raise self._error().with_traceback(error.__traceback__) from None
            raise
        finally:
            self._running.pop(timed, None)
            if timed.expired:
                task.uncancel()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now, self._timer = loop.time(), None
        for timed in list(takewhile(lambda each: each.deadline <= now, self._running)):
            del self._running[timed]
            timed.expired = True
            timed.task.cancel()
        if (first := next(iter(self._running), None)) is not None:
            self._timer = loop.call_at(first.deadline, self._expire, loop)
