"""Journals as a table: the events of queues, with bodies, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from tambomq.errors import QueueError
from tambomq.journal import keys, ops, wire
from tambomq.journal.ops import COUNT, Entry
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import BYTES, Columns, constant
from tambomq.spark.core.cursors import pages
from tambomq.spark.core.id_bounds import id_bounds
from tambomq.spark.core.paging import PageSizer, merge_pages, stream_pages
from tambomq.spark.core.stream_columns import Fields, moments, whole_numbers
from tambomq.spark.core.stream_cuts import text
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.tail import ops as tail_ops
from tambomq.spark.tail.offsets import clip
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class JournalTable:
    """The journals of one protocol's queues. Ranges are of entry ids, as XRANGE takes them."""

    protocol: str

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.TAMBO_JOURNAL

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues with a journal."""
        return chain.from_iterable(pages(store, partial(ops.queues, self.protocol)))

    def key(self, queue: str) -> str:
        """Return the key of the stream."""
        return keys.JournalKeys(self.protocol, queue).journal

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of ids with about as many entries each."""
        seen = store.run(tail_ops.state(self.key(queue)))
        if not seen.last:
            raise QueueError(queue, f"queue {queue!r} of {self.protocol} has no journal")
        ends = None if seen.first is None else text(seen.first), text(seen.last)
        wanted = id_bounds(bounds, "entry_id", "recorded_at", *ends)
        reach = clip(wanted[0] - 1, seen, wanted[1]) if wanted else None
        if reach is None:
            return []
        highs = [reach[1]]
        if seen.length > COUNT and pieces > 1:
            highs = store.follow(tail_ops.pieces(self.key(queue), *reach, seen.length, pieces))
        lows = [reach[0], *(high + 1 for high in highs)][: len(highs)]
        return [Range(queue, text(low), text(high)) for low, high in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they are in its range)
        """Yield entries, the oldest first."""
        journal, sizer = keys.JournalKeys(self.protocol, part.queue), PageSizer(COUNT)

        def page(low: str, count: int) -> list[Entry]:
            return store.run(ops.read(journal, low, part.high, count))

        for rows in merge_pages(stream_pages(page, part.low, sizer), sizer):
            yield self._rows(part.queue, rows)

    def _rows(self, queue: str, page: Sequence[Entry]) -> pa.RecordBatch:
        ids, entries = zip(*page, strict=True)
        fields, places = Fields(entries), pa.array(ids, BYTES)
        if fields.repeat:
            # Of repeated fields, the last one counts.
            fields = Fields([[*chain(*wire.by_name(each).items())] for each in entries])
        return self.columns.batch(
            protocol=constant(self.protocol, len(page)),
            queue=constant(queue, len(page)),
            entry_id=places,
            recorded_at=moments(places),
            event=fields.column(keys.EVENT),
            id=fields.column(keys.ID),
            at=_numbers(fields, keys.AT),
            name=fields.column(keys.NAME),
            delay_ms=_numbers(fields, keys.DELAY),
            attempt=_numbers(fields, keys.ATTEMPT),
            targets=_numbers(fields, keys.TARGETS),
            reason=fields.column(keys.REASON),
            body=fields.column(keys.BODY),
        )


def _numbers(fields: Fields, name: bytes) -> Any:
    texts = fields.array(name)
    if texts is None:
        return constant(None, fields.count)
    found = whole_numbers(texts)
    return [wire.number(each) for each in texts.to_pylist()] if found is None else found
