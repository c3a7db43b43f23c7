"""GOMQ as its law has it, in plain Python: who is owed which message, and who has observed it.

A message is its own name. Nothing here knows how the server keeps its books.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Seat(NamedTuple):
    """One peer of one consumer."""

    consumer: str
    peer: str


@dataclass
class Broker:
    """Main queues, dedicated queues, and batches that are not yet acknowledged."""

    main: dict[str, list[str]] = field(default_factory=dict)
    consumers: dict[str, set[str]] = field(default_factory=dict)
    peers: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[tuple[str, Seat], list[str]] = field(default_factory=dict)
    handed: dict[Seat, tuple[str, dict[str, list[str]]]] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    observed: dict[Seat, dict[str, list[str]]] = field(default_factory=dict)
    """What each has observed for good: popped, or acknowledged."""
    held: set[str] = field(default_factory=set)
    """Keys whose backlog waits for others to subscribe."""
    returned: set[str] = field(default_factory=set)
    """What was at some time back in its main queue."""

    def publish(self, key: str, messages: Iterable[str]) -> None:
        """Append to the main queue."""
        for message in messages:
            self.main.setdefault(key, []).append(message)
            self.published.add(message)

    def subscribe(self, key: str, seat: Seat, *, hold: bool = False) -> bool:
        """Whether the consumer was not subscribed."""
        subscribers = self.consumers.setdefault(key, set())
        new = seat.consumer not in subscribers
        if hold and self.main.get(key) and not self.receivers(key):
            self.held.add(key)
        subscribers.add(seat.consumer)
        self.peers.setdefault(seat.consumer, set()).add(seat.peer)
        self._sit(seat.consumer)
        return new

    def receivers(self, key: str) -> list[Seat]:
        """All who are there to receive *key*."""
        consumers = self.consumers.get(key, ())
        return [Seat(c, p) for c in consumers for p in self.peers.get(c, ())]

    def release(self, consumer: str) -> bool:
        """Whether a backlog of its keys was held, which it is no longer."""
        mine = self.held.intersection(self.subscriptions(consumer))
        self.held -= mine
        return bool(mine)

    def subscriptions(self, consumer: str) -> list[str]:
        """The keys of *consumer*."""
        return sorted(key for key, subscribers in self.consumers.items() if consumer in subscribers)

    def dispatch(self, key: str, count: int) -> None:
        """Give each receiver a copy of the first *count* messages."""
        queue = self.main.get(key, [])
        run, queue[:] = queue[:count], queue[count:]
        for seat in self.receivers(key):
            self.waiting[key, seat] += run

    def observe(self, seat: Seat, limit: int, acked: str) -> dict[str, list[str]]:
        """Pop up to *limit* messages of each key; who wants none changes nothing."""
        if limit:
            self._settle(seat, acked)
            for key, messages in self._unhand(seat).items():
                self.waiting[key, seat][:0] = messages
        return self._note(seat, self._take(seat, limit))

    def observe_kept(
        self, seat: Seat, limit: int, acked: str, batch: str
    ) -> tuple[str, dict[str, list[str]]]:
        """Hand out what was not acknowledged, or else what waits."""
        self._settle(seat, acked)
        if seat in self.handed:
            return self.handed[seat]
        taken = self._take(seat, limit)
        if taken:
            self.handed[seat] = batch, taken
        return batch, taken

    def give_back(self, seat: Seat, taken: dict[str, list[str]]) -> None:
        """Undo an `observe`: what was popped waits again."""
        for key, messages in taken.items():
            self.waiting[key, seat][:0] = messages
            del self.observed[seat][key][-len(messages) :]

    def unsubscribe(self, key: str, consumer: str, acked: str) -> int | None:
        """How many messages went back; `None` if it was not subscribed."""
        if consumer not in self.consumers.get(key, ()):
            return None
        seats = [Seat(consumer, peer) for peer in self.peers.get(consumer, ())]
        for seat in seats:
            self._settle(seat, acked)
            self.waiting[key, seat][:0] = self._unhand(seat, key).get(key, [])
        self.consumers[key].discard(consumer)
        if not self.subscriptions(consumer):
            self.peers.pop(consumer, None)
        return self._leave(key, seats)

    def reap(self, consumer: str, silent: set[str]) -> tuple[int, int]:
        """How many peers are gone, and how many messages went back."""
        gone = [Seat(consumer, p) for p in self.peers.get(consumer, set()) & silent]
        for seat in gone:
            self.peers[consumer].discard(seat.peer)
            for key, messages in self._unhand(seat).items():
                self.waiting[key, seat][:0] = messages
        return len(gone), sum(self._leave(key, gone) for key in self.subscriptions(consumer))

    def seen(self) -> set[str]:
        """What somebody has observed."""
        return {m for keys in self.observed.values() for found in keys.values() for m in found}

    def owed(self) -> set[str]:
        """What waits for somebody, or is handed and not acknowledged."""
        found = {m for messages in self.waiting.values() for m in messages}
        for _, taken in self.handed.values():
            found.update(*taken.values())
        return found

    def _leave(self, key: str, seats: list[Seat]) -> int:
        lists = [self.waiting.pop((key, seat)) for seat in seats]
        longest = max(lists, key=len, default=[])
        assert all(longest[len(longest) - len(each) :] == each for each in lists)
        kept = self.owed() | self.seen()
        back = [message for message in longest if message not in kept]
        self.main.setdefault(key, [])[:0] = back
        self.returned.update(back)
        return len(back)

    def _sit(self, consumer: str) -> None:
        for key in self.subscriptions(consumer):
            for peer in self.peers.get(consumer, ()):
                self.waiting.setdefault((key, Seat(consumer, peer)), [])

    def _settle(self, seat: Seat, acked: str) -> None:
        if seat in self.handed and self.handed[seat][0] == acked:
            self._note(seat, self.handed.pop(seat)[1])

    def _unhand(self, seat: Seat, key: str | None = None) -> dict[str, list[str]]:
        """Take what was handed, of one key or of all."""
        if seat not in self.handed:
            return {}
        batch, taken = self.handed.pop(seat)
        mine = {k: found for k, found in taken.items() if key in (None, k)}
        rest = {k: found for k, found in taken.items() if k not in mine}
        if rest:
            self.handed[seat] = batch, rest
        return mine

    def _take(self, seat: Seat, limit: int) -> dict[str, list[str]]:
        keys = self.subscriptions(seat.consumer)
        if keys:
            self.peers.setdefault(seat.consumer, set()).add(seat.peer)
            self._sit(seat.consumer)
        taken = {}
        for key in keys:
            waiting = self.waiting[key, seat]
            found, waiting[:] = waiting[:limit], waiting[limit:]
            if found:
                taken[key] = found
        return taken

    def _note(self, seat: Seat, taken: dict[str, list[str]]) -> dict[str, list[str]]:
        for key, messages in taken.items():
            self.observed.setdefault(seat, {}).setdefault(key, []).extend(messages)
        return taken
