"""Makes calls from asyncio: one shared connection to each node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tambomq.clock import Patience
from tambomq.errors import StoreUnavailable
from tambomq.store.call import Call, Outcome, Plan, results
from tambomq.store.connect import PATIENCE_S, URL, Credentials, Endpoint, Tls, endpoint
from tambomq.store.ears import Ears, Hearing
from tambomq.store.lane import Lane
from tambomq.store.trip import Address, Trip

T = TypeVar("T")


class AsyncStore:
    """Makes calls, one round trip each. For any number of tasks.

    A server that cannot be reached is tried again, with growing pauses, for
    *patience_s* seconds in all.
    """

    def __init__(
        self,
        url: str | Endpoint = URL,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Remember where the server is; the first call connects."""
        self.endpoint = endpoint(url, tls=tls, credentials=credentials)
        self._patience_s = patience_s
        self._homes: dict[int, Address] = {}
        self._lanes: dict[Address | None, Lane] = {}
        self._opening: dict[Address | None, asyncio.Task[Lane]] = {}
        self._ears = Ears(self._open)

    async def run(self, call: Call[T]) -> T:
        """Make *call* and return its decoded reply."""
        outcome: T = results(await self.outcomes((call,)))[0]
        return outcome

    async def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make *calls* in one round trip and return their replies; raise the first error."""
        return results(await self.outcomes(calls))

    async def follow(self, plan: Plan[T]) -> T:
        """Make the trips of *plan* and return what it comes to."""
        outcomes: list[Outcome] | None = None
        try:
            while True:
                outcomes = await self.outcomes(plan.send(outcomes))  # type: ignore[arg-type]
        except StopIteration as end:
            result: T = end.value
            return result

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Make *calls* in one round trip and return what became of each."""
        trip, patience = Trip(calls), None
        while trip.waiting:
            if trip.pause:
                patience = patience or Patience(self._patience_s)
                if patience.over:
                    trip.give_up()
                    break
                await asyncio.sleep(patience.next_pause_s())
            trip.pause = False
            nodes = trip.by_node(self._homes)
            trip.waiting = await self._rounds(trip, nodes)
            self._homes.update(trip.moved)
        return trip.outcomes

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Hearing]:
        """Hear what is published on *channel* from now on."""
        patience = Patience(self._patience_s)
        hearing = self._ears.hearing(channel)
        try:
            while True:
                try:
                    await self._ears.tune(hearing)
                    break
                except StoreUnavailable:
                    if patience.over:
                        raise
                    await asyncio.sleep(patience.next_pause_s())
            yield hearing
        finally:
            self._ears.leave(hearing)

    async def close(self) -> None:
        """Hang up all connections; a later call opens new ones."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close()
        self._ears.close()

    async def _rounds(
        self, trip: Trip, nodes: dict[Address | None, list[int]]
    ) -> list[int]:
        if len(nodes) == 1:
            ((node, places),) = nodes.items()
            return await self._round(trip, node, places)
        rounds = [self._round(trip, node, places) for node, places in nodes.items()]
        return [place for again in await asyncio.gather(*rounds) for place in again]

    async def _round(self, trip: Trip, node: Address | None, places: Sequence[int]) -> list[int]:
        try:
            lane = await self._lane(node)
        except StoreUnavailable as reason:
            # Its slots may have moved to another node: ask the first ones again.
            self._homes = {slot: home for slot, home in self._homes.items() if home != node}
            return trip.unreachable(places, reason)
        again = trip.arrive(places, await lane.exchange(*trip.pack(places)))
        if trip.pause:
            lane.close()
        return again

    async def _lane(self, node: Address | None) -> Lane:
        lane = self._lanes.get(node)
        if lane is not None and lane.sound and lane.loop is asyncio.get_running_loop():
            return lane
        task = self._opening.get(node)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.ensure_future(self._open(node))
            self._opening[node] = task
            task.add_done_callback(lambda _: self._opening.pop(node, None))
        # All who need the lane wait for one attempt; one who is cancelled does not stop it.
        lane = self._lanes[node] = await asyncio.shield(task)
        return lane

    async def _open(self, node: Address | None, **options: Any) -> Lane:
        if node is not None:
            return await Lane.open(self.endpoint, node, **options)
        for first in self.endpoint.nodes[:-1]:
            try:
                return await Lane.open(self.endpoint, first, **options)
            except StoreUnavailable:
                continue
        return await Lane.open(self.endpoint, self.endpoint.nodes[-1], **options)
