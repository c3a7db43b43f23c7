"""The journal as a table: what passed through queues, with its bodies, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tambomq.errors import QueueError
from tambomq.journal import keys, ops, wire
from tambomq.journal.ops import COUNT, Entry
from tambomq.spark import schemas, tail_ops
from tambomq.spark.columns import Columns, constant
from tambomq.spark.id_bounds import id_bounds
from tambomq.spark.paging import Pace
from tambomq.spark.stream_cuts import number, text
from tambomq.spark.table import Bounds, Range
from tambomq.spark.tail_offsets import within
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class Journal:
    """The journals of one protocol's queues. Ranges are of entry ids, as XRANGE takes them."""

    protocol: str

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.TAMBO_JOURNAL

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues with a journal."""
        cursor = b"0"
        while True:
            cursor, found = store.run(ops.queues(self.protocol, cursor))
            yield from found
            if cursor == b"0":
                return

    def key(self, queue: str) -> str:
        """Return the key of the stream."""
        return keys.Keys(self.protocol, queue).journal

    def first(self, store: Store, queue: str) -> str | None:
        """Return the first id; `None` if there is none."""
        return store.run(ops.first_id(keys.Keys(self.protocol, queue)))

    def last(self, store: Store, queue: str) -> str:
        """Return the last id; ``0-0`` if there is none."""
        return store.run(ops.last_id(keys.Keys(self.protocol, queue))) or "0-0"

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of ids with about as many entries each."""
        seen = store.run(tail_ops.state(self.key(queue)))
        if not seen.last:
            raise QueueError(queue, f"queue {queue!r} of {self.protocol} has no journal")
        ends = None if seen.first is None else text(seen.first), text(seen.last)
        wanted = id_bounds(bounds, "entry_id", "recorded_at", *ends)
        reach = within(wanted[0] - 1, seen, wanted[1]) if wanted else None
        if reach is None:
            return []
        highs = [reach[1]]
        if seen.length > COUNT and pieces > 1:
            highs = store.follow(tail_ops.pieces(self.key(queue), *reach, seen.length, pieces))
        lows = [reach[0], *(high + 1 for high in highs)][: len(highs)]
        return [Range(queue, text(low), text(high)) for low, high in zip(lows, highs, strict=True)]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they are in its range)
        """Yield entries, the oldest first."""
        journal, pace = keys.Keys(self.protocol, part.queue), Pace(COUNT)
        low, asked = part.low, pace.count
        while page := store.run(ops.read(journal, low, part.high, asked)):
            yield self._rows(part.queue, page, pace)
            if len(page) < asked:
                return
            low, asked = f"({page[-1][0].decode()}", pace.count

    def _rows(self, queue: str, page: Sequence[Entry], pace: Pace) -> pa.RecordBatch:
        entries = [wire.by_name(fields) for _, fields in page]
        bodies = wire.column(entries, keys.BODY)
        pace.note(bodies)
        return self.columns.batch(
            protocol=constant(self.protocol, len(page)),
            queue=constant(queue, len(page)),
            entry_id=[id for id, _ in page],
            recorded_at=[number(id) >> 64 for id, _ in page],
            event=wire.column(entries, keys.EVENT),
            id=wire.column(entries, keys.ID),
            at=[wire.number(each) for each in wire.column(entries, keys.AT)],
            name=wire.column(entries, keys.NAME),
            delay_ms=[wire.number(each) for each in wire.column(entries, keys.DELAY)],
            body=bodies,
        )
