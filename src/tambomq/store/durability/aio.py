"""The asyncio client of durable calls: those that tasks make meanwhile share the next wait.

A connection that waits takes no other calls. So these have one of their own, and one cycle of calls
and wait at a time: what is called while it waits goes into the next cycle, as a whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypeVar

from tambomq.errors import BatchIncomplete
from tambomq.store.aio import AsyncStore
from tambomq.store.batcher import copied
from tambomq.store.call import Call, Outcome, Plan
from tambomq.store.durability.confirmation import DurableRoundTrip
from tambomq.store.durability.level import TIMEOUT_S, Durability
from tambomq.store.durability.results import CallConfirmation, PlanConfirmation, patient
from tambomq.store.durability.stores import StoresByLevel
from tambomq.store.durability.support import find_wait, support_calls
from tambomq.store.durability.waits import Wait
from tambomq.store.roundtrip import Address, RoundTrip, slot_of

T = TypeVar("T")

MAX_CALLS: Final = 10_000
"""Calls of one cycle: as packed they are held twice."""

_Waiter: TypeAlias = tuple[Sequence[Call[Any]], asyncio.Future[CallConfirmation]]
_Group: TypeAlias = tuple[asyncio.AbstractEventLoop, Address | None]
"""An event loop, and the node of a cluster: one that is down must not hold up the others."""


class AsyncDurableStore(AsyncStore):
    """Runs calls that are done once they are durable; `NotDurable` if that is not confirmed.

    Calls without keys, and those that fail, wait for nothing.
    """

    def __init__(self, store: AsyncStore, durability: Durability) -> None:
        """Use the server of *store*, over connections of its own."""
        super().__init__(patient(store.endpoint, durability), patience_s=store.patience_s)
        self._durability = durability
        self._wait: Wait | None = None
        self._queued: dict[_Group, deque[_Waiter]] = {}
        self._cycles: dict[_Group, asyncio.Task[None]] = {}

    async def run(self, call: Call[T]) -> T:
        """Run *call* and return its decoded reply."""
        result: T = (await self._confirmed((call,))).only()
        return result

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Run *calls* in one round trip; return a reply or an error for each."""
        return (await self._confirmed(calls)).merged()

    async def follow(self, plan: Plan[T]) -> T:
        """Make the round trips of *plan* and return its result; each that has keys waits."""
        outcomes: list[Outcome] | None = None
        confirmation = PlanConfirmation()
        try:
            while True:
                calls = plan.send(outcomes)  # type: ignore[arg-type]
                outcomes = confirmation.add(await self._confirmed(list(calls)))
        except BatchIncomplete as error:
            confirmation.partial(error)
            raise
        except StopIteration as end:
            result: T = confirmation.result(end.value)
            return result

    async def check(self) -> None:
        """Raise `DurabilityUnsupported` if the server cannot confirm the level."""
        await self._found_wait()

    async def _found_wait(self) -> Wait:
        wait = self._wait
        if wait is None:
            found = await self._complete(RoundTrip(support_calls(self._durability)))
            self._wait = wait = find_wait(self._durability, found)
        return wait

    def _confirmed(self, calls: Sequence[Call[Any]]) -> asyncio.Future[CallConfirmation]:
        """Queue *calls* for the next cycle."""
        group = self._group(calls)
        future: asyncio.Future[CallConfirmation] = group[0].create_future()
        self._queued.setdefault(group, deque()).append((calls, future))
        if group not in self._cycles:
            self._cycles[group] = group[0].create_task(self._run_cycles(group))
        return future

    def _group(self, calls: Sequence[Call[Any]]) -> _Group:
        loop = asyncio.get_running_loop()
        keys = next((call.keys for call in calls if call.keys), ()) if self._slot_map else ()
        return loop, self._slot_map.get(slot_of(keys[0])) if keys else None

    async def _run_cycles(self, group: _Group) -> None:
        try:
            # A copy: loops of other threads begin and end cycles meanwhile.
            for other in list(self._cycles):
                if other[0].is_closed():
                    self._cycles.pop(other, None)
                    self._queued.pop(other, None)
            # What this turn of the loop calls comes along.
            await asyncio.sleep(0)
            while waiters := _next_cycle(self._queued[group]):
                await self._run_cycle(waiters)
        finally:
            del self._cycles[group]
            for _, future in self._queued.pop(group):
                future.cancel()

    async def _run_cycle(self, waiters: Sequence[_Waiter]) -> None:
        try:
            wait = await self._found_wait()
            round_trip = DurableRoundTrip([c for calls, _ in waiters for c in calls], wait)
            outcomes, first = await self._complete(round_trip), 0
            if round_trip.unconfirmed:
                # Maybe by another server, or with another policy: look again before the next call.
                self._wait = None
        except asyncio.CancelledError:
            for _, future in waiters:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001  (raised in the tasks that wait)
            for _, future in waiters:
                if not future.done():
                    future.set_exception(copied(error))
            return
        for calls, future in waiters:
            own = round_trip.unconfirmed and {
                index: missing
                for index in range(len(calls))
                if (missing := round_trip.unconfirmed.get(first + index))
            }
            if not future.done():
                future.set_result(CallConfirmation(outcomes[first : first + len(calls)], own))
            first += len(calls)


def _next_cycle(queued: deque[_Waiter]) -> list[_Waiter]:
    """Take the calls of one cycle from those that are *queued*, without those of ended tasks."""
    waiters, count = list[_Waiter](), 0
    while queued and (not waiters or count + len(queued[0][0]) <= MAX_CALLS):
        calls, future = queued.popleft()
        if not future.done():
            waiters.append((calls, future))
            count += len(calls)
    return waiters


def async_stores(
    plain: AsyncStore, level: str, timeout_s: float = TIMEOUT_S
) -> StoresByLevel[AsyncStore]:
    """Return the stores of an asyncio client whose default is *level*; see `durability`."""
    return StoresByLevel[AsyncStore](plain, AsyncDurableStore, level, timeout_s)
