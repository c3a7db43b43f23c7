"""Who is subscribed to what, and so where a message goes.

A message goes to every subscriber of its queue and to every subscriber of all queues, once to
each. Names without subscribers leave no trace: strangers' messages make nothing grow here.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from tambomq.errors import RemoteProtocolError

Peer = TypeVar("Peer")

MOST_SUBSCRIPTIONS: Final = 100_000
"""What one peer may be subscribed to."""
MOST_NAME_BYTES: Final = 32 * 1024 * 1024
"""How long the names it is subscribed to may be, all together."""

SUBSCRIPTION_BYTES: Final = 512
"""What a subscription takes besides its name: entries of several tables."""

# Sets of targets that nobody uses any more are forgotten when they outnumber the routes by this.
_STALE = 256


class Exchange(Generic[Peer]):
    """The subscriptions of all peers. `routes[name]` is the set of those a message goes to.

    Equal sets are one object, so that whoever forwards can tell by ``is`` whether two
    messages go the same way.
    """

    def __init__(self) -> None:
        self.routes: Routes[Peer] = Routes(self)
        self.named: dict[bytes, set[Peer]] = {}
        self.count = 0
        """How many subscriptions there are."""
        self._total_name_bytes = 0
        self._everywhere: set[Peer] = set()
        self._all: frozenset[Peer] | None = None
        self._names: dict[Peer, dict[bytes, None]] = {}
        self._name_bytes: dict[Peer, int] = {}
        self._sets: dict[frozenset[Peer], frozenset[Peer]] = {}

    @property
    def all(self) -> frozenset[Peer]:
        """Who is subscribed to all queues."""
        # Made when a message needs it: who comes and goes without an end costs each time
        # the same, however many others there are.
        if self._all is None:
            self._all = self.one_set(frozenset(self._everywhere))
        return self._all

    def subscribe(self, peer: Peer, name: bytes) -> None:
        """Let *peer* have the messages of a queue, without a name of all queues.

        Raises `RemoteProtocolError` when that is more than one peer may have.
        """
        if not name:
            if peer not in self._everywhere:
                self._everywhere.add(peer)
                self.count += 1
                self._forget_all()
            return
        names = self._names.setdefault(peer, {})
        if name in names:
            return
        size = self._name_bytes.get(peer, 0) + len(name)
        if len(names) >= MOST_SUBSCRIPTIONS or size > MOST_NAME_BYTES:
            raise RemoteProtocolError(
                f"more than {MOST_SUBSCRIPTIONS} subscriptions, or {MOST_NAME_BYTES} bytes of names"
            )
        names[name], self._name_bytes[peer] = None, size
        self._total_name_bytes += len(name)
        self.named.setdefault(name, set()).add(peer)
        self.count += 1
        self._forget_route(name)

    def unsubscribe(self, peer: Peer, name: bytes) -> None:
        """End one subscription, without a name all of *peer*.

        Who is subscribed to all queues still has the messages of each.
        """
        if not name:
            self.leave(peer)
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

    def leave(self, peer: Peer) -> None:
        """End all subscriptions of *peer*; costs what it had, however many others have."""
        if peer in self._everywhere:
            self._everywhere.remove(peer)
            self.count -= 1
            self._forget_all()
        self._total_name_bytes -= self._name_bytes.pop(peer, 0)
        for name in self._names.pop(peer, ()):
            self._remove(peer, name)

    @property
    def held_bytes(self) -> int:
        """The memory that all subscriptions take, about."""
        return self._total_name_bytes + SUBSCRIPTION_BYTES * self.count

    def held_by_peer(self) -> dict[Peer, int]:
        """Return the memory that the subscriptions of each peer take, about."""
        held = dict.fromkeys(self._everywhere, SUBSCRIPTION_BYTES)
        for peer, names in self._names.items():
            size = self._name_bytes[peer] + SUBSCRIPTION_BYTES * len(names)
            held[peer] = held.get(peer, 0) + size
        return held

    def interest(self, peer: Peer) -> object:
        """Return what is equal for peers with the same subscriptions, and only for those."""
        # Whoever has all queues gets the same as anybody else who has, whatever it names besides.
        return None if peer in self._everywhere else frozenset(self._names.get(peer, ()))

    def _remove(self, peer: Peer, name: bytes) -> None:
        subscribers = self.named[name]
        subscribers.discard(peer)
        if not subscribers:
            del self.named[name]
        self.count -= 1
        self._forget_route(name)

    def _forget_route(self, name: bytes) -> None:
        self.routes.pop(name, None)
        # Each change of a name may leave a set behind; forgetting all of them now and then
        # costs less for each change than to count who uses which.
        if len(self._sets) > 2 * len(self.routes) + _STALE:
            self._forget_all()

    def _forget_all(self) -> None:
        self.routes.clear()
        self._sets.clear()
        self._all = None

    def one_set(self, peers: frozenset[Peer]) -> frozenset[Peer]:
        """Return the one object that stands for *peers*."""
        return self._sets.setdefault(peers, peers)


class Routes(dict[bytes, frozenset[Peer]]):
    """Where a message goes, by the name of its queue; worked out when first asked for."""

    def __init__(self, exchange: Exchange[Peer]) -> None:
        super().__init__()
        self._exchange = exchange

    def __missing__(self, name: bytes) -> frozenset[Peer]:
        """Return the targets of *name*, and remember them if it has subscribers of its own."""
        subscribers = self._exchange.named.get(name)
        if subscribers is None:
            return self._exchange.all
        found = self[name] = self._exchange.one_set(self._exchange.all | subscribers)
        return found
