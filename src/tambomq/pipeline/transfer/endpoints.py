"""The interfaces of queues that messages are moved between, and the form they have on the way.

`tambomq.bulk.moves` describes the steps of a move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from tambomq.bulk.moves import ArrivalRecord, MoveBatch, Tally
from tambomq.pipeline.address import Address


class TransferItem(msgspec.Struct, frozen=True):
    """A message between two protocols."""

    body: bytes
    """As bytes, for protocols that know nothing else."""
    id: str = ""
    name: str = ""
    sent_ms: int = 0
    due_ms: int = 0
    """When it is due, by the clock of the server it leaves; 0 for at once."""
    old: str = ""
    """The old id, to be recorded with the new one."""
    native: Any = None
    """The message in the form of its own protocol, for moves within that protocol."""


class RawPayload(msgspec.Struct, frozen=True):
    """A job's data as MessagePack, without the envelope."""

    data: bytes


class QueueCounts(msgspec.Struct, frozen=True):
    """The number of messages in a queue."""

    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    """Received or dispatched, and not yet acknowledged."""


class TransferSource(Protocol):
    """A queue that messages are moved from."""

    address: Address

    def count(self) -> QueueCounts:
        """Count the messages; raise `QueueNotFound` if the protocol creates queues explicitly."""

    def now_ms(self) -> int:
        """Return the server's time."""

    def take(self, move: str, run: str, *, later: bool) -> MoveBatch:
        """Move some messages into transit and return them; no rows if there are none.

        A batch that is in transit already is returned again. *later* takes delayed messages
        instead of waiting ones.
        """

    def items(self, batch: MoveBatch) -> list[TransferItem]:
        """Return the messages of a batch."""

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Remove a batch from transit: the target has stored it."""

    def left(self, move: str) -> Tally:
        """Return the tally of batches that have left and been stored since the move began."""

    def over(self, move: str, run: str) -> bool:
        """Delete the record of the move; false if a batch is in transit, or *run* is outdated."""


class TransferTarget(Protocol):
    """A queue that messages are moved to."""

    address: Address
    knows_delays: bool

    def prepare(self) -> bool:
        """Create the queue if needed; true if it was created. Raises if it cannot take messages."""

    def pack(self, items: Sequence[TransferItem], now_ms: int) -> list[Any]:
        """Return messages in the form of this protocol; *now_ms* is the time at the source."""

    def tally(self, packed: Sequence[Any]) -> Tally:
        """Return the tally of what will be stored."""

    def put(self, query: str, number: int, checksum: str, packed: Sequence[Any]) -> bool:
        """Store a batch; false if it was stored before."""

    def arrivals(self, query: str) -> ArrivalRecord:
        """Return the record of a move into this queue."""

    def done(self, query: str) -> None:
        """Let the record of a finished move expire in a week; until then it has no expiry."""

    def origins(self, query: str) -> str:
        """Return the key that maps new ids to old ones; '' if new ids contain the old."""


class QueueEndpoint(TransferSource, TransferTarget, Protocol):
    """A queue that can be source and target."""
