"""A model of a ChasquiMQ queue in plain Python: its contents, and the effect of each operation.

The server chooses the ids of stream entries, so the model takes them as input. It predicts
everything else: jobs, their consumers, delayed members, dead letters, markers, results and events.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tambomq.chasqui.keys import RETURNED

FAR = 99_999_999_999_999


@dataclass
class Entry:
    """An entry of a stream."""

    fields: list[bytes]
    id: str = ""
    """How the server calls it, once that is known."""

    @property
    def name(self) -> str:
        """The job's."""
        return self.fields[3].decode() if self.fields[2:3] == [b"n"] else ""


@dataclass
class Hold:
    """A job that is pending for a consumer."""

    consumer: str
    times: int = 1
    """How often it was delivered."""


def named(body: bytes, name: str) -> list[bytes]:
    """The fields of a job."""
    return [b"d", body, b"n", name.encode()] if name else [b"d", body]


@dataclass
class Queue:
    """A queue at rest."""

    cap: int
    stream: list[Entry] = field(default_factory=list)
    held: dict[str, Hold] = field(default_factory=dict)
    delayed: dict[bytes, int] = field(default_factory=dict)
    markers: set[str] = field(default_factory=set)
    indexes: dict[str, bytes] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    windows: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    dlq: list[Entry] = field(default_factory=list)
    had_letters: bool = False
    results: dict[str, bytes] = field(default_factory=dict)
    events: list[list[bytes]] = field(default_factory=list)
    leader: str | None = None
    is_paused: bool = False

    # ── looking ──────────────────────────────────────────────────────────────

    @property
    def free_slots(self) -> int:
        return max(0, self.cap - len(self.stream))

    def waiting(self) -> list[Entry]:
        """Return the jobs not delivered yet, the oldest first."""
        return [entry for entry in self.stream if entry.id not in self.held]

    def in_hands(self) -> int:
        """How many jobs workers have, without those they gave back."""
        return sum(hold.consumer != RETURNED for hold in self.held.values())

    def owns(self, consumer: str, entry: str) -> bool:
        return entry in self.held and self.held[entry].consumer == consumer

    def may_end(self, consumer: str, entry: str) -> bool:
        """Also what nobody received: a failover may have lost the delivery to *consumer*."""
        return entry not in self.held or self.owns(consumer, entry)

    def is_led_by_a_stranger(self) -> bool:
        return self.leader is not None and not self.leader.startswith("tambo-")

    def due(self) -> list[bytes]:
        """Members whose time has come, in the order of the zset."""
        ripe = [(score, member) for member, score in self.delayed.items() if score < FAR]
        return [member for _, member in sorted(ripe)]

    # ── changing ─────────────────────────────────────────────────────────────

    def add_event(self, e: str, id: str, name: str = "", *more: str | int) -> None:
        """An event, without its time."""
        label = ["n", name] if name else []
        words = ["e", e, "id", id, *label, *map(str, more)]
        self.events.append([word.encode() for word in words])

    def put(self, id: str, body: bytes, name: str) -> None:
        """A job waits."""
        self.stream.append(Entry(named(body, name)))
        self.add_event("waiting", id, name)

    def schedule(self, id: str, member: bytes, score: int, *, keyed: bool) -> bool:
        """A job is delayed; false if its id was before."""
        if keyed and id in self.markers:
            return False
        self.delayed[member] = score
        if keyed:
            self.markers.add(id)
            self.indexes[id] = member
        return True

    def cancel(self, id: str) -> bool:
        member = self.indexes.get(id)
        if member is None or member not in self.delayed:
            return False
        del self.delayed[member], self.indexes[id]
        self.markers.discard(id)
        return True

    def read(self, consumer: str, count: int) -> list[Entry]:
        """Give *consumer* jobs that wait."""
        taken = self.waiting()[:count]
        for entry in taken:
            self.held[entry.id] = Hold(consumer)
        return taken

    def claim(self, consumer: str, count: int) -> list[tuple[str, int]]:
        """Assign others' entries to *consumer*; return each with its earlier deliveries."""
        taken = []
        for entry in [entry for entry in self.stream if entry.id in self.held][:count]:
            hold = self.held[entry.id]
            taken.append((entry.id, hold.times))
            self.held[entry.id] = Hold(consumer, hold.times + 1)
        return taken

    def end(self, entry: str) -> None:
        """Delete a job from the stream."""
        self.held.pop(entry, None)
        self.stream = [each for each in self.stream if each.id != entry]

    def bury(self, fields: list[bytes]) -> None:
        self.dlq.append(Entry(fields))
        self.had_letters = True

    def drain(self, *, delayed: bool) -> int:
        back = [entry for entry, hold in self.held.items() if hold.consumer == RETURNED]
        for entry in back:
            del self.held[entry]
        dropped = len(self.waiting()) + (len(self.delayed) if delayed else 0)
        self.stream = [entry for entry in self.stream if entry.id in self.held]
        if delayed:
            self.delayed.clear()
        return dropped
