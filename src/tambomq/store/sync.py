"""Makes calls from threads: a pool of blocking connections."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import hiredis

from tambomq.clock import Patience
from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.call import Call, Outcome, Plan, results
from tambomq.store.choice import Choice
from tambomq.store.connect import (
    PATIENCE_S,
    URL,
    Credentials,
    Endpoint,
    Tls,
    check_patience,
    endpoint,
)
from tambomq.store.server_errors import translate
from tambomq.store.trip import Address, Trip, decoded
from tambomq.store.wire import Wire

T = TypeVar("T")


class Store:
    """Makes calls, one round trip each. For any number of threads.

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
        self._idle: dict[Address, list[Wire]] = {}
        self._process = os.getpid()

    @property
    def is_cluster(self) -> bool:
        """Whether calls are known to go to different nodes."""
        return bool(self._homes)

    def run(self, call: Call[T]) -> T:
        """Make *call* and return its decoded reply."""
        result: T = results(self.outcomes((call,)))[0]
        return result

    def run_all(self, calls: Sequence[Call[T]]) -> list[T]:
        """Make *calls* in one round trip and return their replies; raise the first error."""
        return results(self.outcomes(calls))

    def follow(self, plan: Plan[T]) -> T:
        """Make the trips of *plan* and return what it comes to."""
        outcomes: list[Outcome] | None = None
        try:
            while True:
                calls = plan.send(outcomes)  # type: ignore[arg-type]
                outcomes = self.outcomes(list(calls) if isinstance(calls, Iterator) else calls)
        except StopIteration as end:
            result: T = end.value
            return result

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Outcome]:
        """Make *calls* in one round trip and return what became of each."""
        # Nearly every trip is a single call to a single server on an idle wire, with a good
        # reply. The way that is ready for anything takes twice the time.
        node = self._choice.preferred
        wire = self._spare(node) if len(calls) == 1 and not self._homes else None
        if wire is None:
            return self._finish(Trip(calls))
        replies = wire.exchange(calls[0].packed or hiredis.pack_command(calls[0].parts), 1)
        if replies:
            self._give(node, wire)
            if not isinstance(replies[0], hiredis.ReplyError):
                return [decoded(calls[0], replies[0])]
        trip = Trip(calls)
        trip.waiting = self._arrived(trip, (0,), replies, node)
        return self._finish(trip)

    def _finish(self, trip: Trip) -> list[Outcome]:
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
                time.sleep(patience.next_pause_s())
            trip.pause = False
            nodes = trip.by_node(self._homes)
            trip.waiting = [
                p for node, places in nodes.items() for p in self._round(trip, node, places)
            ]
        return trip.outcomes

    @contextmanager
    def listen(self, channel: str) -> Iterator[Listener]:
        """Hear what is published on *channel* from now on."""
        node, wire, listener = self._subscribe(channel)
        try:
            yield listener
        finally:
            if listener.end():
                self._give(node, wire)

    def close(self) -> None:
        """Hang up all connections; a later call opens new ones."""
        idle, self._idle = self._idle, {}
        for wires in idle.values():
            for wire in wires:
                wire.close()

    def _subscribe(self, channel: str) -> tuple[Address, Wire, Listener]:
        patience = Patience(self._patience_s)
        while True:
            try:
                node, wire = self._reach(None)
                return node, wire, Listener(wire, channel)
            except StoreUnavailable:
                if patience.over:
                    raise
                time.sleep(patience.next_pause_s())

    def _round(self, trip: Trip, node: Address | None, places: Sequence[int]) -> list[int]:
        packed, due = trip.pack(places)
        try:
            where, wire = self._reach(node)
        except StoreUnavailable as reason:
            # Its slots may have moved to another node: ask the first ones again.
            self._homes = {slot: home for slot, home in self._homes.items() if home != node}
            return trip.unreachable(places, reason)
        except StoreError as refusal:
            return trip.refused(places, refusal)
        replies = wire.exchange(packed, due)
        if len(replies) == due:
            self._give(where, wire)
        return self._arrived(trip, places, replies, where)

    def _arrived(
        self, trip: Trip, places: Sequence[int], replies: Sequence[Any], node: Address
    ) -> list[int]:
        again = trip.arrive(places, replies, node[0])
        if trip.pause:
            # Its name may lead to another server by now, one that is ready.
            self.close()
            if trip.refused_writes:
                self._choice.takes_no_writes(node)
        return again

    def _reach(self, node: Address | None) -> tuple[Address, Wire]:
        if node is not None:
            return node, self._take(node)
        spare = self._spare(self._choice.preferred)
        return (self._choice.preferred, spare) if spare else self._reach_any()

    def _reach_any(self) -> tuple[Address, Wire]:
        """Connect to the first primary that can be reached; without one, to a replica."""
        reason: StoreUnavailable | None = None
        replicas: list[tuple[Address, Wire]] = []
        try:
            for node in self._choice.in_order(self._homes.values()):
                try:
                    wire = Wire(self.endpoint, node)
                except StoreUnavailable as error:
                    reason = reason or error
                    continue
                if not wire.is_replica:
                    self._choice.is_primary(node)
                    return node, wire
                replicas.append((node, wire))
            if not replicas:
                raise reason or StoreUnavailable(f"cannot reach {self.endpoint}")
            return replicas.pop(0)
        finally:
            for _, unused in replicas:
                unused.close()

    def _take(self, node: Address) -> Wire:
        return self._spare(node) or Wire(self.endpoint, node)

    def _spare(self, node: Address) -> Wire | None:
        """An idle connection, if there is one."""
        if self._process != os.getpid():
            # Sockets shared with a parent process would mix up its replies and ours.
            self._process = os.getpid()
            self.close()
        idle = self._idle.get(node)
        while idle:
            wire = idle.pop()
            if wire.sound:
                return wire
            wire.close()
        return None

    def _give(self, node: Address, wire: Wire) -> None:
        if wire.is_replica:
            # Used once: by the next call a primary may be there.
            wire.close()
        else:
            self._idle.setdefault(node, []).append(wire)


class Listener:
    """Ears on one channel, on a connection of its own."""

    def __init__(self, wire: Wire, channel: str) -> None:
        """Subscribe; what is published after this returns is heard."""
        self._wire, self._channel = wire, channel
        self.sound = True
        """Whether it still hears."""
        try:
            wire.send(hiredis.pack_command(("SUBSCRIBE", channel)))
            self._until(b"subscribe")
        except OSError as error:
            wire.close()
            raise StoreUnavailable(f"lost the server while subscribing: {error}") from error
        except BaseException:
            wire.close()
            raise

    def wait(self, within_s: float) -> bool:
        """Whether something was published, or may have been, within *within_s* seconds."""
        if not self._wire.readable(within_s):
            return False
        try:
            while self._wire.readable(0):
                self._wire.read()
        except OSError:
            self.sound = False
        return True

    def end(self) -> bool:
        """Unsubscribe; whether the connection is fit for other use."""
        try:
            if not self.sound:
                raise ConnectionResetError
            self._wire.send(hiredis.pack_command(("UNSUBSCRIBE", self._channel)))
            self._until(b"unsubscribe")
        except (OSError, StoreError):
            self._wire.close()
            return False
        return True

    def _until(self, kind: bytes) -> None:
        reply = self._wire.read()
        while not isinstance(reply, list) or reply[0] != kind:
            if isinstance(reply, hiredis.ReplyError):
                raise translate(reply)
            reply = self._wire.read()
