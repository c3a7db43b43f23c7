"""GOMQ's tables: what waits in main queues and for peers, and who is subscribed to what.

Lists are read by ranges of their indices, the last one to the end that the list then has. A list
that loses its first elements meanwhile, because they are dispatched or observed, moves forward
under its reader: rows behind them may then be missing. Who needs every message subscribes; a table
shows what is there while nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from tambomq.errors import WrongType
from tambomq.gomq import keys, scan_ops
from tambomq.spark import gomq_rows, schemas
from tambomq.spark.columns import Columns, constant
from tambomq.spark.nodes import scanned
from tambomq.spark.paging import Pace
from tambomq.spark.table import Bounds, Range
from tambomq.store.call import Call, results
from tambomq.store.sync import Store


class Main:
    """The main queues: what nobody has received yet."""

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_MAIN

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys whose main queue holds something."""
        return _names(store, scan_ops.queues)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:  # noqa: ARG002  (indices know nothing of columns)
        """Return ranges of indices. A key that nobody has published to has none."""
        keys.check_key(queue)
        count = store.run(scan_ops.length(keys.queue(queue)))
        return [Range(queue, *each) for each in _slices(count, pieces)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (as above)
        """Yield messages in the order of their publishing."""
        for first, page in _pages(store, keys.queue(part.queue), part.low, part.high):
            values = gomq_rows.messages(first, page)
            yield self.columns.batch(key=constant(part.queue, len(page)), **values)


class Dedicated:
    """The dedicated queues: what waits for each peer of each consumer that is subscribed.

    *low* of a range is consumer, peer and first index.
    """

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_DEDICATED

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys with subscribers."""
        return _names(store, scan_ops.subscribed)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of indices of every peer's list. A key without subscribers has none."""
        owners = _owners(store, queue, bounds)
        found = _each(
            store, [scan_ops.length(keys.messages(queue, name, peer)) for name, peer in owners]
        )
        return [
            Range(queue, (*owner, first), last)
            for owner, count in zip(owners, found, strict=True)
            for first, last in _slices(count, pieces)
        ]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they chose the lists)
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


class Subscriptions:
    """Who is subscribed to what: a row for every peer, and one for a consumer without any."""

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.GOMQ_SUBSCRIPTIONS

    def names(self, store: Store) -> Iterator[str]:
        """Yield all keys with subscribers."""
        return _names(store, scan_ops.subscribed)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:  # noqa: ARG002  (a key is one piece)
        """Return the key itself."""
        keys.check_key(queue)
        return [Range(queue)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
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
    # Of one server: GOMQ refuses clusters.
    return chain.from_iterable(scanned(store, page))


def _consumers(store: Store, key: str, bounds: Bounds) -> list[str]:
    keys.check_key(key)
    found = store.run(scan_ops.consumers(key))
    return [name for name in found if bounds.allows("consumer", name)]


def _owners(store: Store, key: str, bounds: Bounds) -> list[tuple[str, str]]:
    """Return consumer and peer of each dedicated queue there may be."""
    consumers = _consumers(store, key, bounds)
    found = _each(store, [scan_ops.peers(consumer) for consumer in consumers])
    return [
        (consumer, peer)
        for consumer, peers in zip(consumers, found, strict=True)
        for peer in peers
        if bounds.allows("peer", peer)
    ]


def _each(store: Store, calls: Sequence[Call[Any]], *, tolerant: bool = False) -> list[Any]:
    """Make *calls* by the thousand; *tolerant* of other types, which then read as `None`."""
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
    """Return first and end of at most *pieces* ranges, of a page at least. The last has no end."""
    size = max(scan_ops.COUNT, -(-count // pieces))
    firsts = list(range(0, count, size)) or [0]
    return list(zip(firsts, [*firsts[1:], None], strict=True))


def _pages(
    store: Store, name: str, first: int, end: int | None
) -> Iterator[tuple[int, list[bytes]]]:
    pace = Pace(scan_ops.COUNT)
    if end is None:
        # Not further: who publishes faster than this reads would never be done with.
        end = store.run(scan_ops.length(name))
    while first < end:
        page = store.run(scan_ops.page(name, first, min(pace.count, end - first)))
        if not page:
            return
        yield first, page
        pace.note(page)
        first += len(page)
