"""ChasquiMQ's streams as tables: jobs, dead letters, events, and pending entries.

Ranges are of entry ids, as XRANGE takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.bulk.scan import COUNT, Pending, Row
from tambomq.chasqui.keys import GROUP, Keys, trace_of
from tambomq.chasqui.wire.envelope import read_entry
from tambomq.errors import StoreError
from tambomq.spark.core import schemas
from tambomq.spark.core.columns import Columns, constant
from tambomq.spark.core.cursors import pages
from tambomq.spark.core.id_bounds import id_bounds
from tambomq.spark.core.paging import PageSizer, merge_pages, stream_pages
from tambomq.spark.core.stream_cuts import LAST, cut, number, text
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.formats.chasqui import columns as chasqui_rows
from tambomq.spark.formats.chasqui.columns import Values
from tambomq.spark.tail import ops as tail_ops
from tambomq.store.call import Call
from tambomq.store.sync import Store

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANY: Final = ColumnBounds()


class _StreamKind(NamedTuple):
    columns: Columns
    key: Callable[[Keys], str]
    id: str
    """The column with the entry id."""
    time: str
    """The column with the time of the entry id."""
    values: Callable[[Sequence[Row]], Values]


def _jobs(keys: Keys) -> str:
    return keys.stream


def _dlq(keys: Keys) -> str:
    return keys.dlq


def _events(keys: Keys) -> str:
    return keys.events


_KINDS: Final = {
    "jobs": _StreamKind(schemas.CHASQUI_JOBS, _jobs, "entry_id", "enqueued_at", chasqui_rows.jobs),
    "dlq": _StreamKind(schemas.CHASQUI_DLQ, _dlq, "dlq_id", "died_at", chasqui_rows.letters),
    "events": _StreamKind(
        schemas.CHASQUI_EVENTS, _events, "entry_id", "recorded_at", chasqui_rows.events
    ),
}


@dataclass(frozen=True, slots=True)
class StreamTable:
    """A stream of each queue: ``jobs``, ``dlq`` or ``events``."""

    kind: str
    show_damaged: bool = True

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return _KINDS[self.kind].columns

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def key(self, queue: str) -> str:
        """Return the key of the stream."""
        return _KINDS[self.kind].key(Keys(queue))

    def first(self, store: Store, queue: str) -> str | None:
        """Return the first id; `None` if there is none."""
        return store.run(scan_ops.first(self.key(queue)))

    def last(self, store: Store, queue: str) -> str:
        """Return the last id; ``0-0`` if there is none."""
        return store.run(scan_ops.last(self.key(queue))) or "0-0"

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of ids with about equal entry counts; the last one has an open end."""
        kind, stream = _KINDS[self.kind], self.key(queue)
        if pieces == 1 and bounds == _ANY:
            return [Range(queue, text(0), text(LAST))]
        ends = self.first(store, queue), self.last(store, queue)
        wanted = id_bounds(bounds, kind.id, kind.time, *ends)
        if wanted is None:
            return []
        low, high = map(text, wanted)
        first = store.run(scan_ops.first(stream, low, high))
        last = store.run(scan_ops.last(stream, low, high))
        length = store.run(scan_ops.length(stream))
        if first is None or last is None or length <= COUNT:
            return [Range(queue, low, high)]
        whole = (first, last) == ends
        plan = cut(number(first), number(last), length, pieces, whole=whole)
        highs = [text(each) for _, each in store.follow(tail_ops.looked(stream, plan))]
        lows = [low, *(f"({each}" for each in highs[:-1])]
        return [Range(queue, *each) for each in zip(lows, [*highs[:-1], high], strict=True)]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield entries, the oldest first."""
        kind, sizer, skipped = _KINDS[self.kind], PageSizer(COUNT), 0
        stream = self.key(part.queue)

        def page(low: str, count: int) -> list[Row]:
            return store.run(scan_ops.page(stream, low, part.high, count))

        for rows in merge_pages(stream_pages(page, part.low, sizer), sizer):
            if kept := named(rows, bounds):
                batch = filled(self.columns, part.queue, kind.values(kept))
                sound = batch if self.show_damaged else undamaged(batch)
                skipped += len(batch) - len(sound)
                yield sound
        log_skipped(skipped, part.queue, self.kind)


@dataclass(frozen=True, slots=True)
class PendingTable:
    """The pending entries of each queue's group, with their jobs."""

    group: str = GROUP
    show_damaged: bool = True

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.CHASQUI_PENDING

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of ids with equal entry counts; the last one has an open end."""
        keys = Keys(queue)
        wanted = id_bounds(bounds, "entry_id", "enqueued_at", None, "0-0")
        if wanted is None:
            return []
        low, high = map(text, wanted)
        total = self._asked(store, scan_ops.pending_count(keys, self.group), 0)
        each = max(COUNT, -(-total // pieces))
        edges: list[str] = []
        passed, after = 0, low
        # Pending ids are short: reading all of them is faster than estimating.
        while page := self._page(store, keys, after, high):
            edges += [page[index][0].decode() for index in range(-passed % each, len(page), each)]
            passed += len(page)
            after = f"({page[-1][0].decode()}"
        lows, highs = [low, *edges[1:]], [*(f"({edge}" for edge in edges[1:]), high]
        return [Range(queue, *ends) for ends in zip(lows, highs, strict=True)]

    def _page(self, store: Store, keys: Keys, low: str, high: str) -> list[Pending]:
        return self._asked(store, scan_ops.pending(keys, self.group, low, high), [])

    def _asked(self, store: Store, call: Call[T], nothing: T) -> T:
        """Return the result of *call*; *nothing* if there is no group."""
        try:
            return store.run(call)
        except StoreError as error:
            if error.kind == "NOGROUP":
                return nothing
            raise

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they are in its range)
        """Yield pending entries, the oldest first."""
        keys, low, skipped = Keys(part.queue), part.low, 0
        while page := self._page(store, keys, low, part.high):
            low = f"({page[-1][0].decode()}"
            sizer = PageSizer(COUNT)
            while page:
                now, page = page[: sizer.count], page[sizer.count :]
                rows = store.run_all([scan_ops.entry(keys.stream, each[0]) for each in now])
                sizer.note_entries(rows)
                values = chasqui_rows.pending(now, rows)
                batch = filled(self.columns, part.queue, values)
                sound = batch if self.show_damaged else undamaged(batch)
                skipped += len(batch) - len(sound)
                yield sound
        log_skipped(skipped, part.queue, "pending")


def names(store: Store) -> Iterator[str]:
    """Yield all queues of a server, each once (twice if Redis rehashes meanwhile)."""
    for found in pages(store, scan_ops.names):
        seen = [(queue, _ahead(queue, key)) for key in found if (queue := trace_of(key))]
        others = iter(store.run_all([scan_ops.exists(*ahead) for _, ahead in seen if ahead]))
        for queue, ahead in seen:
            # Report each queue once: for the first of its keys that exists.
            if not ahead or not next(others):
                yield queue


def _ahead(queue: str, key: str) -> tuple[str, ...]:
    traces = Keys(queue).traces
    return traces[: traces.index(key)]


def filled(columns: Columns, queue: str, values: Values) -> pa.RecordBatch:
    """Return rows of one queue."""
    return columns.batch(queue=constant(queue, len(next(iter(values.values())))), **values)


def named(rows: Sequence[Row], bounds: ColumnBounds) -> Sequence[Row]:
    """Return those of *rows* whose dispatch name matches the filters."""
    if "name" not in bounds.only:
        return rows
    return [row for row in rows if bounds.allows("name", read_entry(row[1])[1])]


def undamaged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that could be decoded."""
    if "error" not in batch.schema.names:
        return batch
    errors = batch.column("error")
    return batch if errors.null_count == len(batch) else batch.filter(errors.is_null())


def log_skipped(count: int, queue: str, table: str) -> None:
    """Log how many rows were skipped."""
    if count:
        log.warning(
            "%d rows of %s of queue %r cannot be read: skipped",
            count,
            table,
            queue,
            extra={"queue": queue, "count": count},
        )
