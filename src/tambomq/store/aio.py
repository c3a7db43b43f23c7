"""Makes calls from asyncio: one shared connection to each node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import hiredis

from tambomq.clock import Patience
from tambomq.errors import StoreError, StoreUnavailable, TamboError
from tambomq.store.call import Call, Outcome, Plan, Script, results
from tambomq.store.choice import REPLICA_FOR_S, Choice
from tambomq.store.connect import (
    PATIENCE_S,
    URL,
    Credentials,
    Endpoint,
    Tls,
    check_patience,
    endpoint,
)
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
        self._patience_s = check_patience(patience_s)
        self._choice = Choice(self.endpoint.nodes)
        self._homes: dict[int, Address] = {}
        self._loops: dict[asyncio.AbstractEventLoop, _Here] = {}

    @property
    def is_cluster(self) -> bool:
        """Whether calls are known to go to different nodes."""
        return bool(self._homes)

    async def run(self, call: Call[T]) -> T:
        """Make *call* and return its decoded reply."""
        # Nearly every trip is a single call to a single server on an open lane, with a good
        # reply. The way that is ready for anything takes twice the time.
        lane = None if self._homes else self._here().lanes.get(None)
        if lane is None or not lane.sound:
            return await self._finish_one(call, Trip((call,)))
        try:
            replies = await lane.exchange(call.packed or hiredis.pack_command(call.parts), 1)
        except StoreUnavailable:
            # Never sent, so it may be made like any other.
            return await self._finish_one(call, Trip((call,)))
        if replies and not isinstance(replies[0], hiredis.ReplyError):
            return call.decode(replies[0])
        trip = Trip((call,))
        trip.waiting = self._arrived(trip, (0,), replies, lane)
        return await self._finish_one(call, trip)

    async def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make *calls* in one round trip and return their replies; raise the first error."""
        return results(await self.outcomes(calls))

    async def follow(self, plan: Plan[T]) -> T:
        """Make the trips of *plan* and return what it comes to."""
        outcomes: list[Outcome] | None = None
        try:
            while True:
                calls = plan.send(outcomes)  # type: ignore[arg-type]
                if isinstance(calls, Iterator):
                    outcomes = await self._one_by_one(calls)
                else:
                    outcomes = await self.outcomes(calls)
        except StopIteration as end:
            result: T = end.value
            return result

    async def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Make *calls* in one round trip and return what became of each."""
        if len(calls) == 1:
            return [await self._outcome(calls[0])]
        return await self._finish(Trip(calls))

    async def _one_by_one(self, calls: Iterator[Call[Any]]) -> list[Outcome]:
        """Let each call be on its way before the next is made."""
        under_way, brought = [], set[str]()
        for call in calls:
            sha = call.verb.sha if isinstance(call.verb, Script) else ""
            # A server that had to ask for the script would make the next call first.
            make = self._outcome if sha in brought else self._outcome_with_source
            brought.add(sha)
            under_way.append(asyncio.ensure_future(make(call)))
            # One turn of the loop to take it to the lane, one more to send it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await asyncio.gather(*under_way)

    async def _outcome_with_source(self, call: Call[Any]) -> Outcome:
        return (await self._finish(Trip((call,), with_source=True)))[0]

    async def _outcome(self, call: Call[Any]) -> Outcome:
        try:
            return await self.run(call)
        except TamboError as error:
            return error

    async def _finish_one(self, _: Call[T], trip: Trip) -> T:
        result: T = results(await self._finish(trip))[0]
        return result

    async def _finish(self, trip: Trip) -> list[Outcome]:
        patience = None
        while trip.waiting:
            self._homes.update(trip.moved)
            # Else what is learned next, that a node is gone, would be unlearned.
            trip.moved.clear()
            if trip.pause:
                patience = patience or Patience(self._patience_s)
                if patience.over:
                    trip.give_up()
                    break
                await asyncio.sleep(patience.next_pause_s())
            trip.pause = False
            nodes = trip.by_node(self._homes)
            trip.waiting = await self._rounds(trip, nodes)
        return trip.outcomes

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Hearing]:
        """Hear what is published on *channel* from now on."""
        patience = Patience(self._patience_s)
        ears = self._here().ears
        hearing = ears.hearing(channel)
        try:
            while True:
                try:
                    await ears.tune(hearing)
                    break
                except StoreUnavailable:
                    if patience.over:
                        raise
                    await asyncio.sleep(patience.next_pause_s())
            yield hearing
        finally:
            ears.leave(hearing)

    async def close(self) -> None:
        """Hang up all connections; a later call opens new ones."""
        for loop, here in list(self._loops.items()):
            if loop is asyncio.get_running_loop():
                here.close()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(here.close)
        # asyncio closes the sockets in its next turn.
        await asyncio.sleep(0)

    async def _rounds(self, trip: Trip, nodes: dict[Address | None, list[int]]) -> list[int]:
        if len(nodes) == 1:
            ((node, places),) = nodes.items()
            return await self._round(trip, node, places)
        rounds = [self._round(trip, node, places) for node, places in nodes.items()]
        return [place for again in await asyncio.gather(*rounds) for place in again]

    async def _round(self, trip: Trip, node: Address | None, places: Sequence[int]) -> list[int]:
        packed, due = trip.pack(places)
        try:
            lane = self._here().lanes.get(node)
            if lane is None or not lane.sound:
                lane = await self._lane(node)
            replies = await lane.exchange(packed, due)
        except StoreUnavailable as reason:
            # Its slots may have moved to another node: ask the first ones again.
            self._homes = {slot: home for slot, home in self._homes.items() if home != node}
            return trip.unreachable(places, reason)
        except StoreError as refusal:
            return trip.refused(places, refusal)
        return self._arrived(trip, places, replies, lane)

    def _here(self) -> _Here:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in list(self._loops):
                if other.is_closed():
                    self._loops.pop(other, None)
            here = self._loops[loop] = _Here(Ears(self._open))
        return here

    async def _lane(self, node: Address | None) -> Lane:
        here = self._here()
        task = here.opening.get(node)
        if task is None:
            task = here.opening[node] = asyncio.ensure_future(self._open(node))
            task.add_done_callback(partial(here.opened, node))
        # All who need the lane wait for one attempt; one who is cancelled does not stop it.
        return await asyncio.shield(task)

    async def _open(self, node: Address | None, **options: Any) -> Lane:
        if node is not None:
            return await Lane.open(self.endpoint, node, **options)
        reason: StoreUnavailable | None = None
        replicas: list[Lane] = []
        try:
            for each in self._choice.in_order(self._homes.values()):
                try:
                    lane = await Lane.open(self.endpoint, each, **options)
                except StoreUnavailable as error:
                    reason = reason or error
                    continue
                if not lane.is_replica:
                    self._choice.is_primary(each)
                    return lane
                replicas.append(lane)
            if not replicas:
                raise reason or StoreUnavailable(f"cannot reach {self.endpoint}")
            asyncio.get_running_loop().call_later(REPLICA_FOR_S, replicas[0].retire)
            return replicas.pop(0)
        finally:
            for unused in replicas:
                unused.close(unheard=True)

    def _arrived(
        self, trip: Trip, places: Sequence[int], replies: Sequence[Any], lane: Lane
    ) -> list[int]:
        again = trip.arrive(places, replies, lane.node[0])
        if trip.pause:
            # Its name may lead to another server by now, one that is ready.
            lane.retire()
            if trip.refused_writes:
                self._choice.takes_no_writes(lane.node)
        return again


class _Here:
    """What is open in one event loop: a socket of asyncio's is of no use in another."""

    def __init__(self, ears: Ears) -> None:
        self.ears = ears
        self.lanes: dict[Address | None, Lane] = {}
        self.opening: dict[Address | None, asyncio.Task[Lane]] = {}

    def opened(self, node: Address | None, task: asyncio.Task[Lane]) -> None:
        """Keep the lane, whether or not those who wanted it still wait."""
        del self.opening[node]
        if not task.cancelled() and task.exception() is None:
            self.lanes[node] = task.result()

    def close(self) -> None:
        lanes, self.lanes = self.lanes, {}
        for lane in lanes.values():
            lane.close()
        self.ears.close()
