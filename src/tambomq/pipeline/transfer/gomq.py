"""The main queue of a GOMQ key as the source or target of a transfer."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from tambomq.bulk import moves
from tambomq.bulk.moves import ArrivalRecord, MoveBatch, Tally
from tambomq.clock import unix_date
from tambomq.gomq import keys, wire
from tambomq.gomq.bulk import move as move_ops
from tambomq.gomq.bulk import scan as scan_ops
from tambomq.gomq.bulk.move import InboundRecord
from tambomq.journal.policy import JournalPolicy
from tambomq.pipeline.address import Address
from tambomq.pipeline.transfer.endpoints import QueueCounts, TransferItem
from tambomq.spark.formats.gomq.dates import published_ms
from tambomq.store.sync import Store

_RANDOM_BYTES: Final = 8


class GomqEndpoint:
    """The queue, as source and as target."""

    knows_delays = False

    def __init__(self, store: Store, key: str, journal: JournalPolicy | None = None) -> None:
        self.address = Address("gomq", key)
        self._store, self._key, self._journal = store, key, journal

    def count(self) -> QueueCounts:
        """Count the messages; dispatched ones, in the lists of peers, are in flight."""
        waiting = self._store.run(scan_ops.length(keys.queue(self._key)))
        lists = [
            keys.messages(self._key, consumer, peer)
            for consumer in self._store.run(scan_ops.consumers(self._key))
            for peer in self._store.run(scan_ops.peers(consumer))
        ]
        return QueueCounts(
            waiting, 0, sum(self._store.run_all([scan_ops.length(n) for n in lists]))
        )

    def now_ms(self) -> int:
        """Return 0: GOMQ has no delays."""
        return 0

    def take(self, move: str, run: str, *, later: bool) -> MoveBatch:  # noqa: ARG002  (as in all protocols)
        """Move messages of the main queue into transit."""
        return self._store.run(move_ops.take(self._key, move, run, self._journal))

    def items(self, batch: MoveBatch) -> list[TransferItem]:
        """Return the messages of a batch; bytes that are no message stay unchanged."""
        return [_item(element) for _, element in batch.rows]

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Remove a batch from transit: the target has stored it."""
        self._store.run(moves.arrived(*self._move_keys(move), number, what))

    def left(self, move: str) -> Tally:
        """Return the tally of batches that have left and been stored since the move began."""
        return self._store.run(moves.left(self._move_keys(move)[0]))

    def over(self, move: str, run: str) -> bool:
        """Delete the record of the move; false if a batch is still in transit."""
        return self._store.run(moves.over(*self._move_keys(move), run))

    def prepare(self) -> bool:
        """Return false: a key needs no creation."""
        return False

    def pack(self, items: Sequence[TransferItem], now_ms: int) -> list[InboundRecord]:  # noqa: ARG002  (as in all protocols)
        """Return messages: those of this protocol unchanged, others with new ids."""
        return [_message(place, item) for place, item in enumerate(items)]

    def tally(self, packed: Sequence[InboundRecord]) -> Tally:
        """Return the tally of what will be stored."""
        return moves.tally(each.element for each in packed)

    def put(self, query: str, number: int, checksum: str, packed: Sequence[InboundRecord]) -> bool:
        """Store a batch; false if it was stored before."""
        call = move_ops.put(self._key, query, number, checksum, packed, self._journal)
        return self._store.run(call)

    def arrivals(self, query: str) -> ArrivalRecord:
        """Return the record of a move into this queue."""
        return self._store.run(moves.arrivals(keys.fence(self._key, query)))

    def done(self, query: str) -> None:
        """Let the record of a finished move expire in a week."""
        self._store.run(moves.done(keys.fence(self._key, query)))

    def origins(self, query: str) -> str:
        """Return the key of the hash that maps new ids to old ones."""
        return keys.origins(self._key, query)

    def _move_keys(self, move: str) -> tuple[str, str]:
        return keys.move(self._key, move), keys.transit(self._key, move)


def _item(element: bytes) -> TransferItem:
    found = wire.decode(element)
    is_message = bool(found.id or found.timestamp or found.payload)
    sent = published_ms(found.timestamp, found.id) or 0
    body = found.payload if is_message else element
    return TransferItem(body, found.id, sent_ms=sent, native=element)


def _message(place: int, item: TransferItem) -> InboundRecord:
    if isinstance(item.native, bytes):
        return InboundRecord(item.id, item.native)
    second = item.sent_ms // 1000
    # A deterministic xid: a batch that is packed again must be the same.
    drawn = hashlib.sha1(b"%d %b %b" % (place, item.id.encode(), item.body), usedforsecurity=False)
    whole = (second & 0xFFFFFFFF).to_bytes(4) + drawn.digest()[:_RANDOM_BYTES]
    id = base64.b32hexencode(whole).decode().rstrip("=").lower()
    return InboundRecord(id, wire.encode(id, unix_date(second), item.body), item.old)
