"""A GOMQ key that messages leave or come into."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from tambomq.clock import unix_date
from tambomq.gomq import keys, move_ops, scan_ops, wire
from tambomq.gomq.move_ops import Coming
from tambomq.journal.recording import BOUNDS, Bounds
from tambomq.pipeline.address import Address
from tambomq.pipeline.moving import Count, Item
from tambomq.spark.gomq_dates import published_ms
from tambomq.store import transit
from tambomq.store.sync import Store
from tambomq.store.transit import Arrivals, Batch, Tally

_RANDOM_BYTES: Final = 8


class GomqEnd:
    """A key's main queue, as where messages come from and where they go."""

    knows_delays = False

    def __init__(self, store: Store, key: str, journal: Bounds | None = None) -> None:
        self.address = Address("gomq", key)
        self._store, self._key, self._journal = store, key, journal

    def count(self) -> Count:
        """Return what is there: a key needs no making."""
        waiting = self._store.run(scan_ops.length(keys.queue(self._key)))
        lists = [
            keys.messages(self._key, consumer, peer)
            for consumer in self._store.run(scan_ops.consumers(self._key))
            for peer in self._store.run(scan_ops.peers(consumer))
        ]
        return Count(waiting, 0, sum(self._store.run_all([scan_ops.length(n) for n in lists])))

    def now_ms(self) -> int:
        """Return 0: nothing here has a time at which it is due."""
        return 0

    def take(self, move: str, run: str, *, later: bool) -> Batch:  # noqa: ARG002  (as in all protocols)
        """Let messages leave that wait in the main queue."""
        return self._store.run(move_ops.take(self._key, move, run, self._journal or BOUNDS))

    def items(self, batch: Batch) -> list[Item]:
        """Return the messages of a batch; what is none goes as it is."""
        return [_item(element) for _, element in batch.rows]

    def arrived(self, move: str, number: int, what: Tally) -> None:
        """Forget a batch that has arrived."""
        self._store.run(transit.arrived(*self._place(move), number, what))

    def left(self, move: str) -> Tally:
        """Return what has left and arrived since the move began."""
        return self._store.run(transit.left(self._place(move)[0]))

    def over(self, move: str, run: str) -> bool:
        """Forget the move; false if it is not over."""
        return self._store.run(transit.over(*self._place(move), run))

    def prepare(self) -> bool:
        """There is nothing to make."""
        return False

    def pack(self, items: Sequence[Item], now_ms: int) -> list[Coming]:  # noqa: ARG002  (as in all protocols)
        """Return messages: those of this protocol as they were, others as new ones."""
        return [_message(place, item) for place, item in enumerate(items)]

    def tally(self, packed: Sequence[Coming]) -> Tally:
        """Return the tally of what will be stored."""
        return transit.tally(each.element for each in packed)

    def put(self, query: str, number: int, mark: str, packed: Sequence[Coming]) -> bool:
        """Take a batch; false if it came before."""
        call = move_ops.put(self._key, query, number, mark, packed, self._journal)
        return self._store.run(call)

    def arrivals(self, query: str) -> Arrivals:
        """Return what is remembered of a move into it."""
        return self._store.run(transit.arrivals(keys.fence(self._key, query)))

    def done(self, query: str) -> None:
        """Forget a move into it in a week."""
        self._store.run(transit.done(keys.fence(self._key, query)))

    def origins(self, query: str) -> str:
        """Return the key where it stands what messages were called before."""
        return keys.origins(self._key, query)

    def _place(self, move: str) -> tuple[str, str]:
        return keys.move(self._key, move), keys.transit(self._key, move)


def _item(element: bytes) -> Item:
    found = wire.decode(element)
    is_message = bool(found.id or found.timestamp or found.payload)
    sent = published_ms(found.timestamp, found.id) or 0
    body = found.payload if is_message else element
    return Item(body, found.id, sent_ms=sent, native=element)


def _message(place: int, item: Item) -> Coming:
    if isinstance(item.native, bytes):
        return Coming(item.id, item.native)
    second = item.sent_ms // 1000
    # An xid, from what is known of it alone: a batch that is packed again must be the same.
    drawn = hashlib.sha1(b"%d %b %b" % (place, item.id.encode(), item.body), usedforsecurity=False)
    whole = (second & 0xFFFFFFFF).to_bytes(4) + drawn.digest()[:_RANDOM_BYTES]
    id = base64.b32hexencode(whole).decode().rstrip("=").lower()
    return Coming(id, wire.encode(id, unix_date(second), item.body), item.old)
