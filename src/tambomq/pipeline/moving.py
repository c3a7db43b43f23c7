"""What a queue must be able to do so that messages can leave it, or come into it.

How they go: `tambomq.store.transit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tambomq.pipeline.address import Address
from tambomq.store.transit import Arrivals, Batch, Tally


class Item(msgspec.Struct, frozen=True):
    """A message between two protocols."""

    body: bytes
    """In the words of those who know only bytes."""
    id: str = ""
    name: str = ""
    sent_ms: int = 0
    due_ms: int = 0
    """When it is due, by the clock of the server it leaves; 0 for at once."""
    old: str = ""
    """What is to be remembered that it was called."""
    native: Any = None
    """What its own protocol knows of it besides; only that protocol looks at it."""


class Payload(msgspec.Struct, frozen=True):
    """A job's data as MessagePack, where nothing else is known of the job."""

    data: bytes


class Count(msgspec.Struct, frozen=True):
    """What is in a queue."""

    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    """In somebody's hands: received, or dispatched, and not done."""


class Source(Protocol):
    """A queue that messages leave."""

    address: Address

    def count(self) -> Count:
        """Return what is there; raise `QueueNotFound` where there must be a queue."""

    def now_ms(self) -> int:
        """Return the time of its server."""

    def take(self, move: str, run: str, *, later: bool) -> Batch:
        """Let some messages leave, or return what is in transit; no rows if there is nothing.

        They are those that wait or, *later*, those that are delayed.
        """

    def items(self, batch: Batch) -> list[Item]:
        """Return the messages of a batch."""

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Forget a batch that has arrived."""

    def left(self, move: str) -> Tally:
        """Return what has left and arrived since the move began."""

    def over(self, move: str, run: str) -> bool:
        """Forget the move; false if something is on its way, or it is another by now."""


class Target(Protocol):
    """A queue that messages come into."""

    address: Address
    knows_delays: bool

    def prepare(self) -> bool:
        """See that messages can come; true if the queue had to be made. Raises if they cannot."""

    def pack(self, items: Sequence[Item], now_ms: int) -> list[Any]:
        """Return messages in the form in which they come; *now_ms* is the time they left at."""

    def tally(self, packed: Sequence[Any]) -> Tally:
        """Return the tally of what will be stored."""

    def put(self, query: str, number: int, mark: str, packed: Sequence[Any]) -> bool:
        """Take a batch; false if it came before."""

    def arrivals(self, query: str) -> Arrivals:
        """Return what is remembered of a move into it."""

    def done(self, query: str) -> None:
        """Forget a move into it in a week; until this is called there is no time limit."""

    def origins(self, query: str) -> str:
        """Return the key that has what messages were called before; '' if their ids say it."""


class End(Source, Target, Protocol):
    """A queue that can be either."""
