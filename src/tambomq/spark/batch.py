"""A table, read once: planned on the driver, read in pieces by its workers.

A queue that is named must be there; one that only matches a pattern may go away meanwhile. A queue
may be seen twice where its server moves its list of queues about just then.

Spark 4.3 plans once for all queries on one ``load()`` or view, and lets the filters of the last one
count for all of them: a union of two filters would read one of them twice. So filters save reading
only where ``pushdown`` is asked for, by who uses the table in one place. And a plan leaves its end
open, so that it does not hide what comes later; only new queues that match a pattern need a new
``load()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tambomq.errors import QueueNotFound
from tambomq.spark.filters import bounds_of
from tambomq.spark.options import Given, Place, Wanted
from tambomq.spark.paging import bounded, undisturbed
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.table import Bounds, Range, Table
from tambomq.store.sync import Store

MOST_PLANNED: Final = 1000
"""So many queues are cut one by one. Where there are more, each worker finds its own."""

Decode: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""What is done to rows before Spark gets them: see `payload.Payload.apply`."""


def as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch*."""
    return batch


class Part(InputPartition):
    """Ranges for one task; or none, and the task's share of all queues."""

    def __init__(self, ranges: Sequence[Range] = (), share: tuple[int, int] | None = None) -> None:
        self.ranges, self.share = tuple(ranges), share


class BatchReader(DataSourceReader):
    """Reads *table* of the queues that are *wanted*, in about *parts* tasks."""

    def __init__(
        self, table: Table, place: Place, wanted: Wanted, parts: int, decode: Decode = as_it_is
    ) -> None:
        self._table, self._place, self._wanted, self._parts = table, place, wanted, parts
        self._decode = decode
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        store = self._place.open()
        try:
            with told_in_one_line():
                return self._planned(store)
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part: Any = partition
        store = self._place.open()
        try:
            with told_in_one_line(), undisturbed():
                ranges = self._shared(store, *part.share) if part.share else part.ranges
                for each in ranges:
                    for rows in self._table.read(store, each, self._bounds):
                        yield from map(self._decode, bounded(rows))
        finally:
            store.close()

    def _planned(self, store: Store) -> list[Part]:
        named = [each for each in self._wanted.names if self._allows(each)]
        # Each queue is cut into as many pieces as there are tasks, so that a large one beside
        # small ones is shared by all of them.
        ranges = [r for each in named for r in self._cut(store, each, self._parts)]
        if self._wanted.has_patterns:
            found = list(islice(self._found(store), MOST_PLANNED + 1))
            if len(found) > MOST_PLANNED:
                return [Part(share=(each, self._parts)) for each in range(self._parts)]
            for each in dict.fromkeys(found):
                if each not in named:
                    ranges += self._cut_if_there(store, each, self._parts)
        return _dealt(ranges, self._parts)

    def _found(self, store: Store) -> Iterator[str]:
        for name in self._table.names(store):
            if self._wanted.includes(name) and self._allows(name):
                yield name

    def _shared(self, store: Store, index: int, of: int) -> Iterator[Range]:
        finder = self._place.open()
        try:
            for name in self._found(finder):
                if crc32(name.encode()) % of == index:
                    yield from self._cut_if_there(store, name, 1)
        finally:
            finder.close()

    def _allows(self, queue: str) -> bool:
        return self._bounds.allows(self._table.columns.queue, queue)

    def _cut(self, store: Store, queue: str, pieces: int) -> list[Range]:
        return self._table.cut(store, queue, self._bounds, pieces)

    def _cut_if_there(self, store: Store, queue: str, pieces: int) -> list[Range]:
        try:
            return self._cut(store, queue, pieces)
        except QueueNotFound:
            return []


class PushdownReader(BatchReader):
    """The same, and filters save reading. For tables that are used in one place of one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Remember what saves reading; Spark still applies all of them."""
        self._bounds = bounds_of(filters)
        return filters


def batch_reader(given: Given, table: Table, decode: Decode = as_it_is) -> BatchReader:
    """Return what reads *table* once, as the options say."""
    kind = PushdownReader if given.flag("pushdown", default=False) else BatchReader
    return kind(table, given.place(), given.wanted(), given.parts(), decode)


def _dealt(ranges: Sequence[Range], parts: int) -> list[Part]:
    """Deal *ranges* out to at most *parts* tasks; an empty table is one task with nothing."""
    dealt = [ranges[first::parts] for first in range(min(parts, len(ranges)))]
    return [Part(each) for each in dealt] or [Part()]
