"""Batches of calls: those that tasks of one event loop make in the same turn become one call.

A call that has nothing of its client before it is sent alone and at once. Others wait for the end
of the turn, as they would in the connection's buffer, or until there are enough of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, TypeAlias, TypeVar

from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome

T = TypeVar("T")
G = TypeVar("G", bound=Hashable)

MAX_CALLS = 100
"""Calls of one batch. A script blocks the server for all clients; 100 messages take 0.5 ms."""

# If the calls of all tasks were one batch, the server would idle while they run, and they while it
# works. So a batch leaves early: at four calls and half of those in flight.
_ENOUGH, _SHARE = 4, 2

Waiter: TypeAlias = tuple[Call[Any], asyncio.Future[Any]]
"""A call, and the future of the task that waits for its result; done if the task was cancelled."""

Together: TypeAlias = Callable[[G, Sequence[Waiter]], Awaitable[None]]
"""Makes the calls of a batch of one group as one call, and gives the waiters their results."""


class Batcher:
    """Runs calls of one client, alone or in batches. Safe to share between tasks and loops."""

    def __init__(self, store: AsyncStore) -> None:
        """Run calls by *store*."""
        self._store = store
        self._loops: dict[asyncio.AbstractEventLoop, _LoopBatches] = {}

    def run(self, call: Call[T], group: G, together: Together[G]) -> Awaitable[T]:
        """Run *call*, with others of its *group* if there are any; await its result.

        *together* runs a batch of the group. It leaves out waiters that are done; those to which
        it gives no result get the error that it raises.
        """
        # No coroutine unless needed: most calls of a busy client join a batch.
        batches = self._of_loop()
        if batches.in_flight:
            return batches.join(call, group, together)
        return batches.run_alone(call)

    def _of_loop(self) -> _LoopBatches:
        loop = asyncio.get_running_loop()
        batches = self._loops.get(loop)
        if batches is None:
            for other in list(self._loops):
                if other.is_closed():
                    self._loops.pop(other, None)
            batches = self._loops[loop] = _LoopBatches(loop, self._store)
        return batches


class _LoopBatches:
    """The batches of one event loop: its futures cannot be used from another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: AsyncStore) -> None:
        self.in_flight = 0
        """Calls that are sent or about to be."""
        self._loop, self._store = loop, store
        self._due: dict[Hashable, tuple[Together[Any], list[Waiter]]] = {}
        self._flush_scheduled = False
        self._round_trips = set[asyncio.Task[None]]()

    async def run_alone(self, call: Call[T]) -> T:
        """Run *call* by itself, at once."""
        self.in_flight += 1
        try:
            return await self._store.run(call)
        finally:
            self.in_flight -= 1

    def join(self, call: Call[Any], group: G, together: Together[G]) -> asyncio.Future[Any]:
        """Add *call* to the next batch of its *group*."""
        _, waiters = self._due.get(group) or self._due.setdefault(group, (together, []))
        future = self._loop.create_future()
        waiters.append((call, future))
        self.in_flight += 1
        count = len(waiters)
        if count >= MAX_CALLS or (count >= _ENOUGH and count * _SHARE >= self.in_flight):
            self._start(group, *self._due.pop(group))
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._flush_scheduled = False
        due, self._due = self._due, {}
        for group, (together, waiters) in due.items():
            self._start(group, together, waiters)

    def _start(self, group: G, together: Together[G], waiters: list[Waiter]) -> None:
        task = self._loop.create_task(self._run(group, together, waiters))
        self._round_trips.add(task)
        task.add_done_callback(self._round_trips.discard)

    async def _run(self, group: G, together: Together[G], waiters: list[Waiter]) -> None:
        try:
            # A task that was cancelled before anything was sent has asked for nothing.
            waiting = [waiter for waiter in waiters if not waiter[1].done()]
            if len(waiting) == 1:
                give(waiting[0], await self._store.run(waiting[0][0]))
            elif waiting:
                await together(group, waiting)
        except asyncio.CancelledError:
            for _, future in waiters:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (raised in the tasks that wait)
            fail(waiters, error)
        finally:
            self.in_flight -= len(waiters)


def give(waiter: Waiter, result: Outcome) -> None:
    """Set the result of a waiter, or raise it there if it is an error."""
    _, future = waiter
    if future.done():
        return
    if isinstance(result, TamboError):
        future.set_exception(result)
    else:
        future.set_result(result)


def give_all(waiters: Sequence[Waiter], results: Sequence[Outcome]) -> None:
    """Set the results of *waiters*, in their order."""
    for waiter, result in zip(waiters, results, strict=True):
        give(waiter, result)


def fail(waiters: Sequence[Waiter], error: Exception) -> None:
    """Raise *error* in all tasks that still wait."""
    for _, future in waiters:
        if not future.done():
            future.set_exception(copied(error))


def copied(error: Exception) -> Exception:
    """Return an error like *error*: raising one changes its traceback, so each task has its own."""
    if not isinstance(error, TamboError):
        return error
    # Not copy.copy: it calls the constructor, whose parameters are not the args.
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied
