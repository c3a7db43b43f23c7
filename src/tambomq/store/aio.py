"""The asyncio Redis client: runs calls of any number of tasks over one connection per node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import hiredis

from tambomq.clock import RetryBudget
from tambomq.errors import StoreError, StoreUnavailable, TamboError
from tambomq.store.aio_connection import AioConnection
from tambomq.store.aio_pubsub import PubSub, Subscription
from tambomq.store.call import Call, Outcome, Plan, Script, results
from tambomq.store.endpoint import (
    PATIENCE_S,
    URL,
    Credentials,
    Endpoint,
    Tls,
    check_patience,
    endpoint,
)
from tambomq.store.primary.aio import async_primary_finder
from tambomq.store.primary.loop_connections import LoopConnections
from tambomq.store.primary.sentinels import CHECK_EVERY_S, retry_budget
from tambomq.store.primary.slot_map import SlotMap
from tambomq.store.roundtrip import Address, RoundTrip

T = TypeVar("T")


class AsyncStore:
    """Runs calls, one round trip each. Safe to share between tasks and event loops.

    If the server cannot be reached, calls are retried with backoff for *patience_s* seconds.
    """

    def __init__(
        self,
        url: str | Endpoint = URL,
        *,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Store the address; the first call connects."""
        self.endpoint = endpoint(url, tls=tls, credentials=credentials)
        self._patience_s = check_patience(patience_s)
        self._finder = async_primary_finder(self.endpoint, partial(AsyncStore, patience_s=0))
        self._choice = self._finder.choice
        self._is_watched = self.endpoint.sentinels is not None
        """Whether sentinels know when the primary changes."""
        self._slot_map = SlotMap()
        self._loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self.connections_opened = 0
        """Connections opened so far: more than one for each node, if any was lost."""

    @property
    def patience_s(self) -> float:
        """For how many seconds calls are retried while the server cannot be reached."""
        return self._patience_s

    @property
    def is_cluster(self) -> bool:
        """Whether a node has redirected a call: the server is a cluster."""
        return bool(self._slot_map.nodes)

    async def run(self, call: Call[T]) -> T:
        """Run *call* and return its decoded reply."""
        # Fast path: one call, one server, an open connection, no error. It covers nearly all
        # round trips and takes half the time of the general path.
        is_special = self._slot_map or (self._is_watched and self._must_refresh)
        connection = None if is_special else self._loop_state().connections.get(None)
        if connection is None or not connection.is_usable:
            return await self._complete_one(call, RoundTrip((call,)))
        try:
            replies = await connection.exchange(call.packed or hiredis.pack_command(call.parts), 1)
        except StoreUnavailable:
            # It was never sent, so it may be retried even if it is not repeatable.
            return await self._complete_one(call, RoundTrip((call,)))
        if replies and not isinstance(replies[0], hiredis.ReplyError):
            return call.decode(replies[0])
        round_trip = RoundTrip((call,))
        round_trip.pending = self._on_replies(round_trip, (0,), replies, connection)
        return await self._complete_one(call, round_trip)

    async def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run *calls* in one round trip and return their replies; raise the first error."""
        return results(await self.outcomes(calls))

    async def follow(self, plan: Plan[T]) -> T:
        """Make the round trips of *plan* and return its result."""
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
        """Run *calls* in one round trip; return a reply or an error for each."""
        if len(calls) == 1:
            return [await self._outcome(calls[0])]
        return await self._complete(RoundTrip(calls))

    async def _one_by_one(self, calls: Iterator[Call[Any]]) -> list[Outcome]:
        """Send each call before the next one is built."""
        in_flight, sent_sources = [], set[str]()
        for call in calls:
            sha = call.verb.sha if isinstance(call.verb, Script) else ""
            # With a bare SHA a missing script would be resent after the next call: out of order.
            make = self._outcome if sha in sent_sources else self._outcome_with_source
            sent_sources.add(sha)
            in_flight.append(asyncio.ensure_future(make(call)))
            # One turn of the loop to enqueue it on the connection, one more to send it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await asyncio.gather(*in_flight)

    async def _outcome_with_source(self, call: Call[Any]) -> Outcome:
        return (await self._complete(RoundTrip((call,), with_source=True)))[0]

    async def _outcome(self, call: Call[Any]) -> Outcome:
        try:
            return await self.run(call)
        except TamboError as error:
            return error

    async def _complete_one(self, _: Call[T], round_trip: RoundTrip) -> T:
        result: T = results(await self._complete(round_trip))[0]
        return result

    def _retry_budget(self) -> RetryBudget:
        return retry_budget(self.endpoint, self._patience_s, is_cluster=self.is_cluster)

    async def _complete(self, round_trip: RoundTrip) -> list[Outcome]:
        budget = None
        while round_trip.pending:
            if round_trip.moved:
                self._slot_map = self._slot_map.with_moved(round_trip.moved)
                # Cleared, or the next round would restore entries of a node found unreachable.
                round_trip.moved.clear()
            if round_trip.pause:
                budget = budget or self._retry_budget()
                if budget.is_exhausted:
                    round_trip.give_up()
                    break
                await asyncio.sleep(budget.next_delay_s())
            round_trip.pause = False
            nodes = round_trip.by_node(self._slot_map)
            round_trip.pending = await self._rounds(round_trip, nodes)
        return round_trip.outcomes

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Subscription]:
        """Subscribe to *channel* until the block ends."""
        budget = self._retry_budget()
        pubsub = self._loop_state().pubsub
        subscription = pubsub.subscription(channel)
        try:
            while True:
                try:
                    await pubsub.subscribe(subscription)
                    break
                except StoreUnavailable:
                    if budget.is_exhausted:
                        raise
                    await asyncio.sleep(budget.next_delay_s())
            yield subscription
        finally:
            pubsub.unsubscribe(subscription)

    async def close(self) -> None:
        """Close all idle connections; a later call opens new ones."""
        await self._finder.close()
        self._in_each_loop(LoopConnections.close)
        # asyncio closes the sockets in the next turn of the loop.
        await asyncio.sleep(0)

    async def _rounds(
        self, round_trip: RoundTrip, nodes: dict[Address | None, list[int]]
    ) -> list[int]:
        if len(nodes) == 1:
            ((node, indexes),) = nodes.items()
            return await self._round(round_trip, node, indexes)
        rounds = [self._round(round_trip, node, indexes) for node, indexes in nodes.items()]
        return [index for again in await asyncio.gather(*rounds) for index in again]

    async def _round(
        self, round_trip: RoundTrip, node: Address | None, indexes: Sequence[int]
    ) -> list[int]:
        packed, due = round_trip.pack(indexes)
        try:
            if self._is_watched and self._must_refresh:
                await self._refresh()
            connection = self._loop_state().connections.get(node)
            if connection is None or not connection.is_usable:
                connection = await self._connect(node)
            replies = await connection.exchange(packed, due)
        except StoreUnavailable as reason:
            # Its slots may have moved: forget them, so that other nodes are asked.
            self._slot_map = self._slot_map.without(node)
            return round_trip.unreachable(indexes, reason)
        except StoreError as refusal:
            return round_trip.refused(indexes, refusal)
        return self._on_replies(round_trip, indexes, replies, connection)

    def _loop_state(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            for other in list(self._loops):
                if other.is_closed():
                    self._loops.pop(other, None)
            state = self._loops[loop] = LoopConnections(PubSub(self._open))
        return state

    async def _connect(self, node: Address | None) -> AioConnection:
        state = self._loop_state()
        task = state.opening.get(node)
        if task is None:
            self.connections_opened += 1
            task = state.opening[node] = asyncio.ensure_future(self._open(node))
            task.add_done_callback(partial(state.opened, node))
        # All tasks that need the connection share one attempt; cancelling one does not stop it.
        return await asyncio.shield(task)

    async def _open(self, node: Address | None, **options: Any) -> AioConnection:
        if node is not None:
            return await AioConnection.open(self.endpoint, node, **options)
        connect = partial(AioConnection.open, self.endpoint, **options)
        connection = await self._finder.connect(connect, self._slot_map.nodes)
        if self._is_watched:
            self._leave_former()
            self._loop_state().watch(self._refresh)
        return connection

    @property
    def _must_refresh(self) -> bool:
        """Whether sentinels were asked too long ago: this loop or process was stopped meanwhile."""
        return self._choice.is_outdated(CHECK_EVERY_S)

    async def _refresh(self) -> None:
        """Ask the sentinels if that is due, and leave a server that is not the primary any more."""
        if await self._finder.refresh():
            self._leave_former()

    def _leave_former(self) -> None:
        self._in_each_loop(partial(LoopConnections.leave_former, primary=self._choice.preferred))

    def _in_each_loop(self, act: Callable[[LoopConnections], None]) -> None:
        for loop, state in list(self._loops.items()):
            if loop is asyncio.get_running_loop():
                act(state)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(act, state)

    def _on_replies(
        self,
        round_trip: RoundTrip,
        indexes: Sequence[int],
        replies: Sequence[Any],
        connection: AioConnection,
    ) -> list[int]:
        again = round_trip.on_replies(indexes, replies, connection.node[0])
        if round_trip.pause:
            # The host name may resolve to another server by now: reconnect.
            connection.retire()
            if round_trip.refused_writes:
                self._choice.takes_no_writes(connection.node)
        return again
