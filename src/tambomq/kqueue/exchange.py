"""Subscriptions, and the routes of messages that follow from them.

A message goes once to every subscriber of its queue and every wildcard subscriber (of all queues).
Names without subscribers are not stored: messages to unknown queues use no memory.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, TypeVar

from tambomq.errors import RemoteProtocolError

Peer = TypeVar("Peer")

MAX_SUBSCRIPTIONS: Final = 100_000
"""Subscriptions per peer."""
MAX_NAME_BYTES: Final = 32 * 1024 * 1024
"""Total length of the names that one peer is subscribed to."""

SUBSCRIPTION_BYTES: Final = 512
"""Estimated memory of a subscription besides its name: entries of several tables."""

# Clear the interned target sets when unused ones outnumber the routes by this.
_STALE = 256


class Exchange(Generic[Peer]):
    """The subscriptions of all peers. `routes[name]` is the set of targets of a message.

    Equal sets are one object, so that ``is`` shows whether two messages have the same
    targets.
    """

    def __init__(self) -> None:
        self.routes: Routes[Peer] = Routes(self)
        self.subscribers: dict[bytes, set[Peer]] = {}
        self.count = 0
        """Number of subscriptions."""
        self._total_name_bytes = 0
        self._wildcard: set[Peer] = set()
        self._wildcard_set: frozenset[Peer] | None = None
        self._names: dict[Peer, dict[bytes, None]] = {}
        self._name_bytes: dict[Peer, int] = {}
        self._sets: dict[frozenset[Peer], frozenset[Peer]] = {}

    @property
    def wildcard_subscribers(self) -> frozenset[Peer]:
        """The peers that are subscribed to all queues."""
        # Built on demand: so a subscribe costs the same however many other peers there are.
        if self._wildcard_set is None:
            self._wildcard_set = self.interned(frozenset(self._wildcard))
        return self._wildcard_set

    def subscribe(self, peer: Peer, name: bytes) -> None:
        """Subscribe *peer* to a queue; with an empty name, to all queues.

        Raises `RemoteProtocolError` beyond the limits per peer.
        """
        if not name:
            if peer not in self._wildcard:
                self._wildcard.add(peer)
                self.count += 1
                self._clear_routes()
            return
        names = self._names.setdefault(peer, {})
        if name in names:
            return
        size = self._name_bytes.get(peer, 0) + len(name)
        if len(names) >= MAX_SUBSCRIPTIONS or size > MAX_NAME_BYTES:
            raise RemoteProtocolError(
                f"more than {MAX_SUBSCRIPTIONS} subscriptions, or {MAX_NAME_BYTES} bytes of names"
            )
        names[name], self._name_bytes[peer] = None, size
        self._total_name_bytes += len(name)
        self.subscribers.setdefault(name, set()).add(peer)
        self.count += 1
        self._drop_route(name)

    def unsubscribe(self, peer: Peer, name: bytes) -> None:
        """End one subscription of *peer*; with an empty name, all of them.

        A wildcard subscriber still gets the messages of the queue.
        """
        if not name:
            self.unsubscribe_all(peer)
            return
        names = self._names.get(peer)
        if names is None or name not in names:
            return
        del names[name]
        self._name_bytes[peer] -= len(name)
        self._total_name_bytes -= len(name)
        if not names:
            del self._names[peer], self._name_bytes[peer]
        self._remove(peer, name)

    def unsubscribe_all(self, peer: Peer) -> None:
        """End all subscriptions of *peer*; the cost depends on their number alone."""
        if peer in self._wildcard:
            self._wildcard.remove(peer)
            self.count -= 1
            self._clear_routes()
        self._total_name_bytes -= self._name_bytes.pop(peer, 0)
        for name in self._names.pop(peer, ()):
            self._remove(peer, name)

    def list_subscriptions(self, peer: Peer, limit: int) -> list[bytes]:
        """Return up to *limit* names that *peer* is subscribed to; the empty name is all queues."""
        names = islice(self._names.get(peer, ()), limit)
        return [b"", *names] if peer in self._wildcard else list(names)

    @property
    def wildcards(self) -> int:
        """The number of peers that are subscribed to all queues."""
        return len(self._wildcard)

    @property
    def held_bytes(self) -> int:
        """Estimated memory of all subscriptions."""
        return self._total_name_bytes + SUBSCRIPTION_BYTES * self.count

    def held_by_peer(self) -> dict[Peer, int]:
        """Return the estimated memory of the subscriptions of each peer."""
        held = dict.fromkeys(self._wildcard, SUBSCRIPTION_BYTES)
        for peer, names in self._names.items():
            size = self._name_bytes[peer] + SUBSCRIPTION_BYTES * len(names)
            held[peer] = held.get(peer, 0) + size
        return held

    def subscription_key(self, peer: Peer) -> object:
        """Return a key that is equal for peers that receive the same messages."""
        # Wildcard subscribers all receive the same, whatever else they are subscribed to.
        return None if peer in self._wildcard else frozenset(self._names.get(peer, ()))

    def _remove(self, peer: Peer, name: bytes) -> None:
        subscribers = self.subscribers[name]
        subscribers.discard(peer)
        if not subscribers:
            del self.subscribers[name]
        self.count -= 1
        self._drop_route(name)

    def _drop_route(self, name: bytes) -> None:
        self.routes.pop(name, None)
        # Each change may leave an unused set behind. Clearing all of them now and then costs
        # less than counting references.
        if len(self._sets) > 2 * len(self.routes) + _STALE:
            self._clear_routes()

    def _clear_routes(self) -> None:
        self.routes.clear()
        self._sets.clear()
        self._wildcard_set = None

    def interned(self, peers: frozenset[Peer]) -> frozenset[Peer]:
        """Return the one object for all sets equal to *peers*."""
        return self._sets.setdefault(peers, peers)


class Routes(dict[bytes, frozenset[Peer]]):
    """The targets of a message by the name of its queue; computed on first use."""

    def __init__(self, exchange: Exchange[Peer]) -> None:
        super().__init__()
        self._exchange = exchange

    def __missing__(self, name: bytes) -> frozenset[Peer]:
        """Return the targets of *name*; cache them if the queue itself has subscribers."""
        subscribers = self._exchange.subscribers.get(name)
        if subscribers is None:
            return self._exchange.wildcard_subscribers
        targets = self._exchange.wildcard_subscribers | subscribers
        found = self[name] = self._exchange.interned(targets)
        return found
