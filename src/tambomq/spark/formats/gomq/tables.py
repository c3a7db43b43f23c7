"""GOMQ's tables: messages in main and dedicated queues, and subscriptions.

Lists are read by ranges of indexes; the last range ends where the list ends when it is read. If
elements are removed from the head meanwhile, because they are dispatched or observed, as many later
rows may be skipped. To get every message, subscribe; a table is exact only while nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from tambomq.errors import WrongType
from tambomq.gomq import keys
from tambomq.gomq.bulk import scan as scan_ops
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns, constant
from tambomq.spark.core.cursors import scanned
from tambomq.spark.core.paging import PageSizer
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.formats.gomq import columns as gomq_rows
from tambomq.store.call import Call, results
from tambomq.store.sync import Store


class MainQueueTable:
    """The main queues: messages not dispatched yet."""

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_MAIN

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys whose main queue holds something."""
        return _names(store, scan_ops.queues)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:  # noqa: ARG002  (filters cannot select indexes)
        """Return ranges of indexes; one empty range for a key without messages."""
        keys.check_key(queue)
        count = store.run(scan_ops.length(keys.queue(queue)))
        return [Range(queue, *each) for each in _slices(count, pieces)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (as above)
        """Yield messages in the order of publication."""
        for first, page in _pages(store, keys.queue(part.queue), part.low, part.high):
            values = gomq_rows.messages(first, page)
            yield self.columns.batch(key=constant(part.queue, len(page)), **values)


class DedicatedQueueTable:
    """The dedicated queues: messages for each peer of each subscribed consumer.

    *low* of a range is consumer, peer and first index.
    """

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_DEDICATED

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys with subscribers."""
        return _names(store, scan_ops.subscribed)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of indexes of every peer's list; none for a key without subscribers."""
        owners = _owners(store, queue, bounds)
        found = _each(
            store, [scan_ops.length(keys.messages(queue, name, peer)) for name, peer in owners]
        )
        return [
            Range(queue, (*owner, first), last)
            for owner, count in zip(owners, found, strict=True)
            for first, last in _slices(count, pieces)
        ]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they chose the lists)
        """Yield messages in the order their peer will observe them."""
        consumer, peer, begin = part.low
        name = keys.messages(part.queue, consumer, peer)
        for first, page in _pages(store, name, begin, part.high):
            yield self.columns.batch(
                key=constant(part.queue, len(page)),
                consumer=constant(consumer, len(page)),
                peer=constant(peer, len(page)),
                **gomq_rows.messages(first, page),
            )


class SubscriptionTable:
    """The subscriptions: a row for every peer, and one for each consumer without peers."""

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_SUBSCRIPTIONS

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys with subscribers."""
        return _names(store, scan_ops.subscribed)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:  # noqa: ARG002  (a key is one piece)
        """Return the key itself."""
        keys.check_key(queue)
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield the subscribers of a key."""
        consumers = _consumers(store, part.queue, bounds)
        owners = _owners(store, part.queue, bounds)
        silent = sorted(set(consumers) - {consumer for consumer, _ in owners})
        for rows in _chunks([*owners, *((consumer, None) for consumer in silent)]):
            known = [(name, peer) for name, peer in rows if peer is not None]
            waiting = _each(
                store,
                [scan_ops.length(keys.messages(part.queue, *row)) for row in known],
                tolerant=True,
            )
            seen = _each(store, [scan_ops.last_action(peer) for _, peer in known], tolerant=True)
            nothing = [None] * (len(rows) - len(known))
            yield self.columns.batch(
                key=constant(part.queue, len(rows)),
                consumer=[consumer for consumer, _ in rows],
                peer=[peer for _, peer in rows],
                last_action_at=[*seen, *nothing],
                waiting=[*waiting, *nothing],
            )


def _names(store: Store, page: Callable[[bytes], Call[tuple[bytes, list[str]]]]) -> Iterator[str]:
    # One server only: GOMQ refuses clusters.
    return chain.from_iterable(scanned(store, page))


def _consumers(store: Store, key: str, bounds: ColumnBounds) -> list[str]:
    keys.check_key(key)
    found = store.run(scan_ops.consumers(key))
    return [name for name in found if bounds.allows("consumer", name)]


def _owners(store: Store, key: str, bounds: ColumnBounds) -> list[tuple[str, str]]:
    """Return consumer and peer of each possible dedicated queue."""
    consumers = _consumers(store, key, bounds)
    found = _each(store, [scan_ops.peers(consumer) for consumer in consumers])
    return [
        (consumer, peer)
        for consumer, peers in zip(consumers, found, strict=True)
        for peer in peers
        if bounds.allows("peer", peer)
    ]


def _each(store: Store, calls: Sequence[Call[Any]], *, tolerant: bool = False) -> list[Any]:
    """Run *calls* in chunks; with *tolerant*, keys of a wrong type give `None`."""
    found: list[Any] = []
    for some in _chunks(calls):
        outcomes = store.outcomes(some)
        if tolerant:
            outcomes = [None if isinstance(each, WrongType) else each for each in outcomes]
        found += results(outcomes)
    return found


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(items), scan_ops.COUNT):
        yield items[first : first + scan_ops.COUNT]


def _slices(count: int, pieces: int) -> list[tuple[int, int | None]]:
    """Return first and end of at most *pieces* ranges, each at least a page; the last is open."""
    size = max(scan_ops.COUNT, -(-count // pieces))
    firsts = list(range(0, count, size)) or [0]
    return list(zip(firsts, [*firsts[1:], None], strict=True))


def _pages(
    store: Store, name: str, first: int, end: int | None
) -> Iterator[tuple[int, list[bytes]]]:
    sizer = PageSizer(scan_ops.COUNT)
    if end is None:
        # Stop at the current end: with fast publishers the read would never finish.
        end = store.run(scan_ops.length(name))
    while first < end:
        page = store.run(scan_ops.page(name, first, min(sizer.count, end - first)))
        if not page:
            return
        yield first, page
        sizer.note(page)
        first += len(page)
