"""ChasquiMQ's streams as tables: jobs, dead letters, events, and what is pending.

Ranges are of entry ids, as XRANGE takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from tambomq.chasqui import scan_ops
from tambomq.chasqui.keys import GROUP, Keys, trace_of
from tambomq.chasqui.scan_ops import COUNT, Pending, Row
from tambomq.chasqui.wire import read_entry
from tambomq.errors import StoreError
from tambomq.spark import chasqui_rows, schemas, tail_ops
from tambomq.spark.chasqui_rows import Values
from tambomq.spark.columns import Columns, constant
from tambomq.spark.id_bounds import id_bounds
from tambomq.spark.nodes import pages
from tambomq.spark.paging import Pace, gathered, stream_pages
from tambomq.spark.stream_cuts import LAST, cut, number, text
from tambomq.spark.table import Bounds, Range
from tambomq.store.call import Call
from tambomq.store.sync import Store

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANY: Final = Bounds()


class _Kind(NamedTuple):
    columns: Columns
    key: Callable[[Keys], str]
    id: str
    """The column for a row's place."""
    time: str
    """The column for the time in it."""
    values: Callable[[Sequence[Row]], Values]


def _jobs(keys: Keys) -> str:
    return keys.stream


def _dlq(keys: Keys) -> str:
    return keys.dlq


def _events(keys: Keys) -> str:
    return keys.events


_KINDS: Final = {
    "jobs": _Kind(schemas.CHASQUI_JOBS, _jobs, "entry_id", "enqueued_at", chasqui_rows.jobs),
    "dlq": _Kind(schemas.CHASQUI_DLQ, _dlq, "dlq_id", "died_at", chasqui_rows.letters),
    "events": _Kind(schemas.CHASQUI_EVENTS, _events, "entry_id", "told_at", chasqui_rows.events),
}


@dataclass(frozen=True, slots=True)
class Entries:
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

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of ids with about as many entries each; what comes later is in the last."""
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

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield entries, the oldest first."""
        kind, pace, skipped = _KINDS[self.kind], Pace(COUNT), 0
        stream = self.key(part.queue)

        def page(low: str, count: int) -> list[Row]:
            return store.run(scan_ops.page(stream, low, part.high, count))

        for rows in gathered(stream_pages(page, part.low, pace), pace):
            if kept := named(rows, bounds):
                batch = filled(self.columns, part.queue, kind.values(kept))
                sound = batch if self.show_damaged else undamaged(batch)
                skipped += len(batch) - len(sound)
                yield sound
        tell_skipped(skipped, part.queue, self.kind)


@dataclass(frozen=True, slots=True)
class PendingEntries:
    """What the group of each queue has read and not acknowledged, with the jobs themselves."""

    group: str = GROUP
    show_damaged: bool = True

    @property
    def columns(self) -> Columns:
        """As `schemas` has them."""
        return schemas.CHASQUI_PENDING

    def names(self, store: Store) -> Iterator[str]:
        """Yield all queues."""
        return names(store)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of ids with as many entries each; what comes later is in the last."""
        keys = Keys(queue)
        wanted = id_bounds(bounds, "entry_id", "enqueued_at", None, "0-0")
        if wanted is None:
            return []
        low, high = map(text, wanted)
        total = self._asked(store, scan_ops.pending_count(keys, self.group), 0)
        each = max(COUNT, -(-total // pieces))
        edges: list[str] = []
        passed, after = 0, low
        # Ids alone are short: one goes through them faster than one could guess.
        while page := self._page(store, keys, after, high):
            edges += [page[place][0].decode() for place in range(-passed % each, len(page), each)]
            passed += len(page)
            after = f"({page[-1][0].decode()}"
        lows, highs = [low, *edges[1:]], [*(f"({edge}" for edge in edges[1:]), high]
        return [Range(queue, *ends) for ends in zip(lows, highs, strict=True)]

    def _page(self, store: Store, keys: Keys, low: str, high: str) -> list[Pending]:
        return self._asked(store, scan_ops.pending(keys, self.group, low, high), [])

    def _asked(self, store: Store, call: Call[T], nothing: T) -> T:
        """Return what *call* comes to; *nothing* where there is no group."""
        try:
            return store.run(call)
        except StoreError as error:
            if str(error).startswith("NOGROUP"):
                return nothing
            raise

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  (they are in its range)
        """Yield pending entries, the oldest first."""
        keys, low, skipped = Keys(part.queue), part.low, 0
        while page := self._page(store, keys, low, part.high):
            low = f"({page[-1][0].decode()}"
            pace = Pace(COUNT)
            while page:
                now, page = page[: pace.count], page[pace.count :]
                rows = store.run_all([scan_ops.entry(keys.stream, each[0]) for each in now])
                pace.note_entries(rows)
                values = chasqui_rows.pending(now, rows)
                batch = filled(self.columns, part.queue, values)
                sound = batch if self.show_damaged else undamaged(batch)
                skipped += len(batch) - len(sound)
                yield sound
        tell_skipped(skipped, part.queue, "pending")


def names(store: Store) -> Iterator[str]:
    """Yield all queues of a server, each once or, if it moves its keys about just then, twice."""
    for found in pages(store, scan_ops.names):
        seen = [(queue, _ahead(queue, key)) for key in found if (queue := trace_of(key))]
        others = iter(store.run_all([scan_ops.exists(*ahead) for _, ahead in seen if ahead]))
        for queue, ahead in seen:
            # Each must be found once: by the first of its keys that is there.
            if not ahead or not next(others):
                yield queue


def _ahead(queue: str, key: str) -> tuple[str, ...]:
    traces = Keys(queue).traces
    return traces[: traces.index(key)]


def filled(columns: Columns, queue: str, values: Values) -> pa.RecordBatch:
    """Return rows of one queue."""
    return columns.batch(queue=constant(queue, len(next(iter(values.values())))), **values)


def named(rows: Sequence[Row], bounds: Bounds) -> Sequence[Row]:
    """Return those of *rows* whose dispatch name is wanted."""
    if "name" not in bounds.only:
        return rows
    return [row for row in rows if bounds.allows("name", read_entry(row[1])[1])]


def undamaged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that could be read."""
    if "error" not in batch.schema.names:
        return batch
    errors = batch.column("error")
    return batch if errors.null_count == len(batch) else batch.filter(errors.is_null())


def tell_skipped(count: int, queue: str, table: str) -> None:
    """Let the log say how many rows were left out."""
    if count:
        log.warning("%d rows of %s of queue %r cannot be read: skipped", count, table, queue)
