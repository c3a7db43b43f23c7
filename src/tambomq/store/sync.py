"""The blocking Redis client: runs calls from any number of threads over a pool of connections."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import hiredis

from tambomq.clock import Deadline, RetryBudget
from tambomq.errors import StoreError, StoreUnavailable, TamboError
from tambomq.store.call import Call, Outcome, Plan, results
from tambomq.store.endpoint import (
    PATIENCE_S,
    URL,
    Credentials,
    Endpoint,
    Tls,
    check_patience,
    endpoint,
)
from tambomq.store.primary.sentinels import CHECK_EVERY_S, retry_budget
from tambomq.store.primary.slot_map import SlotMap
from tambomq.store.primary.sync import primary_finder
from tambomq.store.roundtrip import Address, RoundTrip, decoded
from tambomq.store.server_errors import translate
from tambomq.store.sync_connection import SyncConnection

T = TypeVar("T")


class Store:
    """Runs calls, one round trip each. Safe to share between threads.

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
        self._finder = primary_finder(self.endpoint, partial(Store, patience_s=0))
        self._choice = self._finder.choice
        self._is_watched = self.endpoint.sentinels is not None
        """Whether sentinels know when the primary changes."""
        self._slot_map = SlotMap()
        # Shared by threads without a lock, with and without the GIL: `append` and `pop` of a deque
        # are atomic, and whoever pops a connection owns it. A deque is never replaced, so that no
        # connection is returned to one that `close` has emptied for good.
        self._idle: dict[Address, deque[SyncConnection]] = {}
        self._process = os.getpid()

    @property
    def patience_s(self) -> float:
        """For how many seconds calls are retried while the server cannot be reached."""
        return self._patience_s

    @property
    def is_cluster(self) -> bool:
        """Whether a node has redirected a call: the server is a cluster."""
        return bool(self._slot_map.nodes)

    def run(self, call: Call[T]) -> T:
        """Run *call* and return its decoded reply."""
        outcome: T | TamboError = self.outcomes((call,))[0]
        if isinstance(outcome, TamboError):
            raise outcome
        return outcome

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Run *calls* in one round trip and return their replies; raise the first error."""
        return results(self.outcomes(calls))

    def follow(self, plan: Plan[T]) -> T:
        """Make the round trips of *plan* and return its result."""
        outcomes: list[Outcome] | None = None
        try:
            while True:
                calls = plan.send(outcomes)  # type: ignore[arg-type]
                outcomes = self.outcomes(list(calls) if isinstance(calls, Iterator) else calls)
        except StopIteration as end:
            result: T = end.value
            return result

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Run *calls* in one round trip; return a reply or an error for each."""
        return [self._outcome(*calls)] if len(calls) == 1 else self._complete(RoundTrip(calls))

    def _outcome(self, call: Call[T]) -> T | TamboError:
        # Fast path: one server, an idle connection, no error. It covers nearly all round trips
        # and takes half the time of the general path.
        node = self._choice.preferred
        is_special = self._slot_map or (self._is_watched and self._choice.is_outdated())
        connection = None if is_special else self._take_idle(node)
        if connection is None:
            return self._complete(RoundTrip((call,)))[0]
        replies = connection.exchange(call.packed or hiredis.pack_command(call.parts), 1)
        if replies:
            self._return_idle(node, connection)
            if not isinstance(replies[0], hiredis.ReplyError):
                return decoded(call, replies[0])
        round_trip = RoundTrip((call,))
        round_trip.pending = self._on_replies(round_trip, (0,), replies, node)
        return self._complete(round_trip)[0]

    def _retry_budget(self) -> RetryBudget:
        return retry_budget(self.endpoint, self._patience_s, is_cluster=self.is_cluster)

    def _complete(self, round_trip: RoundTrip) -> list[Outcome]:
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
                time.sleep(budget.next_delay_s())
            round_trip.pause = False
            nodes = round_trip.by_node(self._slot_map)
            round_trip.pending = [
                p for node, indexes in nodes.items() for p in self._round(round_trip, node, indexes)
            ]
        return round_trip.outcomes

    @contextmanager
    def listen(self, channel: str) -> Iterator[Listener]:
        """Subscribe to *channel* until the block ends."""
        node, connection, listener = self._subscribe(channel)
        try:
            yield listener
        finally:
            if listener.end():
                self._return_idle(node, connection)

    def close(self) -> None:
        """Close all idle connections; a later call opens new ones."""
        self._finder.close()
        self._close_idle()

    def _close_idle(self) -> None:
        for idle in self._idle.copy().values():
            with suppress(IndexError):
                while True:
                    idle.pop().close()

    def _subscribe(self, channel: str) -> tuple[Address, SyncConnection, Listener]:
        budget = self._retry_budget()
        while True:
            try:
                node, connection = self._connection_to(None)
                return node, connection, Listener(connection, channel)
            except StoreUnavailable:
                if budget.is_exhausted:
                    raise
                time.sleep(budget.next_delay_s())

    def _round(
        self, round_trip: RoundTrip, node: Address | None, indexes: Sequence[int]
    ) -> list[int]:
        packed, due = round_trip.pack(indexes)
        try:
            address, connection = self._connection_to(node)
        except StoreUnavailable as reason:
            # Its slots may have moved: forget them, so that other nodes are asked.
            self._slot_map = self._slot_map.without(node)
            return round_trip.unreachable(indexes, reason)
        except StoreError as refusal:
            return round_trip.refused(indexes, refusal)
        replies = connection.exchange(packed, due)
        if len(replies) == due:
            self._return_idle(address, connection)
        return self._on_replies(round_trip, indexes, replies, address)

    def _on_replies(
        self, round_trip: RoundTrip, indexes: Sequence[int], replies: Sequence[Any], node: Address
    ) -> list[int]:
        again = round_trip.on_replies(indexes, replies, node[0])
        if round_trip.pause:
            # The host name may resolve to another server by now: reconnect.
            self._close_idle()
            if round_trip.refused_writes:
                self._choice.takes_no_writes(node)
        return again

    def _connection_to(self, node: Address | None) -> tuple[Address, SyncConnection]:
        if node is not None:
            return node, self._take_idle(node) or SyncConnection(self.endpoint, node)
        if self._is_watched and self._finder.refresh():
            self._close_idle()
        primary = self._choice.preferred
        if spare := self._take_idle(primary):
            return primary, spare
        return self._finder.connect(self._connect, self._slot_map.nodes)

    def _connect(self, node: Address) -> SyncConnection:
        is_current = partial(self._is_primary, node) if self._is_watched else None
        return SyncConnection(self.endpoint, node, is_current)

    def _is_primary(self, node: Address) -> bool:
        """Whether the sentinels still name *node*; asks them if that is due."""
        self._finder.refresh()
        return self._choice.preferred == node

    def _take_idle(self, node: Address) -> SyncConnection | None:
        """Return a usable idle connection to *node*, or `None`."""
        if self._process != os.getpid():
            # After a fork: sockets shared with the parent would mix up replies. Close before
            # `_process` is set, since other threads then trust the idle connections.
            self._close_idle()
            self._process = os.getpid()
        idle = self._idle.get(node)
        try:
            while idle:
                connection = idle.pop()
                if connection.is_usable:
                    return connection
                connection.close()
        except IndexError:
            # Another thread took the last one.
            pass
        return None

    def _return_idle(self, node: Address, connection: SyncConnection) -> None:
        if connection.is_replica or (self._is_watched and node != self._choice.preferred):
            # Used once: the next call looks for a primary again.
            connection.close()
        else:
            idle = self._idle.get(node)
            if idle is None:
                idle = self._idle.setdefault(node, deque())
            idle.append(connection)


class Listener:
    """A subscription to one channel, on a connection of its own."""

    def __init__(self, connection: SyncConnection, channel: str) -> None:
        """Subscribe; everything published after this returns is received."""
        self._connection, self._channel = connection, channel
        self.is_usable = True
        """Whether the connection is still open."""
        try:
            connection.send(hiredis.pack_command(("SUBSCRIBE", channel)))
            self._until(b"subscribe")
        except OSError as error:
            connection.close()
            raise StoreUnavailable(f"lost the server while subscribing: {error}") from error
        except BaseException:
            connection.close()
            raise

    def wait(self, within_s: float) -> bool:
        """Wait up to *within_s* seconds; return whether something may have been published."""
        deadline = Deadline(within_s)
        while not self._connection.readable(min(deadline.left_s, CHECK_EVERY_S)):
            if not self._connection.is_current():
                self.is_usable = False
                return True
            if deadline.passed:
                return False
        try:
            while self._connection.readable(0):
                self._connection.read()
        except OSError:
            self.is_usable = False
        return True

    def end(self) -> bool:
        """Unsubscribe; return whether the connection can be reused."""
        try:
            if not self.is_usable:
                raise ConnectionResetError
            self._connection.send(hiredis.pack_command(("UNSUBSCRIBE", self._channel)))
            self._until(b"unsubscribe")
        except (OSError, StoreError):
            self._connection.close()
            return False
        return True

    def _until(self, kind: bytes) -> None:
        while not isinstance(reply := self._connection.read(), list) or reply[0] != kind:
            if isinstance(reply, hiredis.ReplyError):
                raise translate(reply)
