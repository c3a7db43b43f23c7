"""A reference model of GOMQ in plain Python: the messages that each peer is owed or has observed.

A message is its own name. The model knows nothing of the server's data structures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Member(NamedTuple):
    """One peer of one consumer."""

    consumer: str
    peer: str


@dataclass
class Broker:
    """Main queues, dedicated queues, and batches that are not yet acknowledged."""

    main: dict[str, list[str]] = field(default_factory=dict)
    consumers: dict[str, set[str]] = field(default_factory=dict)
    peers: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[tuple[str, Member], list[str]] = field(default_factory=dict)
    handed: dict[Member, tuple[str, dict[str, list[str]]]] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    observed: dict[Member, dict[str, list[str]]] = field(default_factory=dict)
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

    def subscribe(self, key: str, member: Member, *, hold: bool = False) -> bool:
        """Whether the consumer was not subscribed."""
        subscribers = self.consumers.setdefault(key, set())
        new = member.consumer not in subscribers
        if hold and self.main.get(key) and not self.receivers(key):
            self.held.add(key)
        subscribers.add(member.consumer)
        self.peers.setdefault(member.consumer, set()).add(member.peer)
        self._sit(member.consumer)
        return new

    def receivers(self, key: str) -> list[Member]:
        """The connected receivers of *key*."""
        consumers = self.consumers.get(key, ())
        return [Member(c, p) for c in consumers for p in self.peers.get(c, ())]

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
        for member in self.receivers(key):
            self.waiting[key, member] += run

    def observe(self, member: Member, limit: int, acked: str) -> dict[str, list[str]]:
        """Pop up to *limit* messages of each key; a limit of 0 changes nothing."""
        if limit:
            self._settle(member, acked)
            for key, messages in self._unhand(member).items():
                self.waiting[key, member][:0] = messages
        return self._note(member, self._take(member, limit))

    def observe_kept(
        self, member: Member, limit: int, acked: str, batch: str
    ) -> tuple[str, dict[str, list[str]]]:
        """Hand out what was not acknowledged, or else what waits."""
        self._settle(member, acked)
        if member in self.handed:
            return self.handed[member]
        taken = self._take(member, limit)
        if taken:
            self.handed[member] = batch, taken
        return batch, taken

    def give_back(self, member: Member, taken: dict[str, list[str]]) -> None:
        """Undo an `observe`: what was popped waits again."""
        for key, messages in taken.items():
            self.waiting[key, member][:0] = messages
            del self.observed[member][key][-len(messages) :]

    def unsubscribe(self, key: str, consumer: str, acked: str) -> int | None:
        """How many messages went back; `None` if it was not subscribed."""
        if consumer not in self.consumers.get(key, ()):
            return None
        members = [Member(consumer, peer) for peer in self.peers.get(consumer, ())]
        for member in members:
            self._settle(member, acked)
            self.waiting[key, member][:0] = self._unhand(member, key).get(key, [])
        self.consumers[key].discard(consumer)
        if not self.subscriptions(consumer):
            self.peers.pop(consumer, None)
        return self._leave(key, members)

    def reap(self, consumer: str, silent: set[str]) -> tuple[int, int]:
        """How many peers are gone, and how many messages went back."""
        left = [Member(consumer, p) for p in self.peers.get(consumer, set()) & silent]
        for member in left:
            self.peers[consumer].discard(member.peer)
            for key, messages in self._unhand(member).items():
                self.waiting[key, member][:0] = messages
        return len(left), sum(self._leave(key, left) for key in self.subscriptions(consumer))

    def seen(self) -> set[str]:
        """The messages that a peer has observed."""
        return {m for keys in self.observed.values() for found in keys.values() for m in found}

    def owed(self) -> set[str]:
        """The messages that wait for a peer, or are handed to it and not acknowledged."""
        found = {m for messages in self.waiting.values() for m in messages}
        for _, taken in self.handed.values():
            found.update(*taken.values())
        return found

    def _leave(self, key: str, members: list[Member]) -> int:
        lists = [self.waiting.pop((key, member)) for member in members]
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
                self.waiting.setdefault((key, Member(consumer, peer)), [])

    def _settle(self, member: Member, acked: str) -> None:
        if member in self.handed and self.handed[member][0] == acked:
            self._note(member, self.handed.pop(member)[1])

    def _unhand(self, member: Member, key: str | None = None) -> dict[str, list[str]]:
        """Take what was handed, of one key or of all."""
        if member not in self.handed:
            return {}
        batch, taken = self.handed.pop(member)
        mine = {k: found for k, found in taken.items() if key in (None, k)}
        rest = {k: found for k, found in taken.items() if k not in mine}
        if rest:
            self.handed[member] = batch, rest
        return mine

    def _take(self, member: Member, limit: int) -> dict[str, list[str]]:
        keys = self.subscriptions(member.consumer)
        if keys:
            self.peers.setdefault(member.consumer, set()).add(member.peer)
            self._sit(member.consumer)
        taken = {}
        for key in keys:
            waiting = self.waiting[key, member]
            found, waiting[:] = waiting[:limit], waiting[limit:]
            if found:
                taken[key] = found
        return taken

    def _note(self, member: Member, taken: dict[str, list[str]]) -> dict[str, list[str]]:
        for key, messages in taken.items():
            self.observed.setdefault(member, {}).setdefault(key, []).extend(messages)
        return taken
