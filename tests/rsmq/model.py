"""A reference model of RSMQ in plain Python: the state of a queue, and each operation on it.

Ids and times come from the server and are passed in. The model predicts everything else.
Messages are visible or far from it: a `now` that is a moment old will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

ASIDE_MS = 30_000


@dataclass
class Stored:
    """A stored message."""

    body: bytes | None
    """`None`: the body is lost, only the id is left."""
    score: int
    rc: int = 0
    fr: int = 0
    why: str | None = None
    token: str = ""

    @property
    def receipt(self) -> str:
        """The receipt of its last delivery."""
        return f"{self.rc}-{self.token}" if self.token else str(self.rc)


@dataclass
class Queue:
    """A stored queue."""

    vt: int
    delay: int
    maxsize: int
    totalsent: int = 0
    totalrecv: int = 0
    messages: dict[str, Stored] = field(default_factory=dict)
    recorded: bool = False
    """Whether the key of receipts exists."""
    max_messages: int = -1
    max_bytes: int = -1
    ttl_ms: int = -1
    dead_letters: bool = False
    """Whether messages that do not fit become dead letters."""

    def order(self) -> list[str]:
        """All ids in the order they are or become visible; equal times by id."""
        return sorted(self.messages, key=lambda id: (self.messages[id].score, id))

    def visible(self, now: int) -> list[str]:
        """The ids that a receive considers."""
        return [id for id in self.order() if self.messages[id].score <= now]

    def fits(self, body: bytes) -> bool:
        """Whether the queue accepts a body of this length."""
        return self.maxsize == -1 or len(body) <= self.maxsize

    @property
    def is_bounded(self) -> bool:
        """Whether it has a bound."""
        return max(self.max_messages, self.max_bytes, self.ttl_ms) > 0

    @property
    def body_bytes(self) -> int:
        """Bytes of all bodies that are there."""
        return sum(len(message.body or b"") for message in self.messages.values())

    def admits(self, bodies: Sequence[bytes]) -> int:
        """How many of *bodies*, in their order, fit within the bounds."""
        fit, size = 0, self.body_bytes
        for body in bodies:
            size += len(body)
            if 0 < self.max_messages < len(self.messages) + fit + 1 or 0 < self.max_bytes < size:
                break
            fit += 1
        return fit

    def expired(self, now: int) -> list[str]:
        """The ids of messages that were visible for longer than the TTL."""
        if self.ttl_ms < 0:
            return []
        return [id for id in self.order() if self.messages[id].score < now - self.ttl_ms]

    def send(self, id: str, body: bytes, score: int) -> None:
        """Store a message."""
        self.messages[id] = Stored(body, score)
        self.totalsent += 1

    def receive(self, count: int, hide_ms: int, now: int) -> tuple[list[str], list[str]]:
        """Do what one script does: receive up to *count*; the ids received and those put aside.

        A page of *count* ids is looked at; only if none of them has a body, the next.
        """
        taken: list[str] = []
        aside: list[str] = []
        while not taken and (page := self.visible(now)[:count]):
            for id in page:
                message = self.messages[id]
                if message.body is None:
                    message.score = now + max(hide_ms, ASIDE_MS)
                    aside.append(id)
                else:
                    message.score = now + hide_ms
                    message.rc += 1
                    self.totalrecv += 1
                    taken.append(id)
        return taken, aside

    def pop(self, now: int) -> tuple[str | None, Stored | None, list[str]]:
        """Receive and delete one; return it, and the ids put aside before it was found."""
        aside: list[str] = []
        for id in self.visible(now):
            if self.messages[id].body is not None:
                self.totalrecv += 1
                return id, self.messages.pop(id), aside
            self.messages[id].score = now + ASIDE_MS
            aside.append(id)
        return None, None, aside

    def holds(self, id: str, receipt: str | None) -> bool:
        """Whether the message exists and *receipt* is of its last delivery."""
        return id in self.messages and receipt in (None, self.messages[id].receipt)

    def delete(self, id: str, receipt: str | None) -> bool:
        """Delete a message."""
        if not self.holds(id, receipt):
            return False
        del self.messages[id]
        return True

    def fields(self) -> dict[bytes, bytes]:
        """The hash, without the times of creation and change."""
        found: dict[str, int | str | bytes] = {
            "vt": self.vt,
            "delay": self.delay,
            "maxsize": self.maxsize,
        }
        found |= {"totalsent": self.totalsent} if self.totalsent else {}
        found |= {"totalrecv": self.totalrecv} if self.totalrecv else {}
        for id, message in self.messages.items():
            found |= {} if message.body is None else {id: message.body}
            found |= {f"{id}:rc": message.rc, f"{id}:fr": message.fr} if message.rc else {}
            found |= {} if message.why is None else {f"{id}:why": message.why}
        return {
            name.encode(): value if isinstance(value, bytes) else str(value).encode()
            for name, value in found.items()
        }

    def scores(self) -> dict[bytes, float]:
        """The zset."""
        return {id.encode(): message.score for id, message in self.messages.items()}
