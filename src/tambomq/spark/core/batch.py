"""Batch reads of a table: planned on the driver, read in ranges by Spark's workers.

A queue selected by name must exist; one that matches a pattern may disappear meanwhile. A queue may
be read twice if Redis rehashes its set of queues during the scan.

Spark 4.3 plans once for all queries on one ``load()`` or view, and applies the filters of the last
one to all of them: a union of two filters would read one of them twice. So filters are pushed down
only with the option ``pushdown``, for tables that are used in one place. Ranges have an open end,
so a plan does not hide later messages; only new queues that match a pattern need a new ``load()``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias
from zlib import crc32

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tambomq.errors import QueueNotFound
from tambomq.spark.core.filters import bounds_of
from tambomq.spark.core.options import QueueSelector, RedisTarget, SourceOptions
from tambomq.spark.core.paging import gc_disabled, split_large
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.core.table import ColumnBounds, Range, Table
from tambomq.store.sync import Store

MAX_PLANNED: Final = 1000
"""Up to this many queues are split on the driver; with more, each worker lists its own."""

Decode: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Converts rows before Spark gets them: see `payload.PayloadDecoder.apply`."""


def undecoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch* unchanged."""
    return batch


class BatchPartition(InputPartition):
    """Ranges for one task; or none, and the task's share of all queues."""

    def __init__(self, ranges: Sequence[Range] = (), share: tuple[int, int] | None = None) -> None:
        self.ranges, self.share = tuple(ranges), share


class BatchReader(DataSourceReader):
    """Reads *table* from the queues of *selector*, in about *partition_count* tasks."""

    def __init__(
        self,
        table: Table,
        redis_target: RedisTarget,
        selector: QueueSelector,
        partition_count: int,
        decode: Decode = undecoded,
    ) -> None:
        self._table, self._redis_target, self._selector, self._partition_count = (
            table,
            redis_target,
            selector,
            partition_count,
        )
        self._decode = decode
        self._bounds = ColumnBounds()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions, one per task."""
        store = self._redis_target.open()
        try:
            with one_line_errors():
                return self._planned(store)
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part: Any = partition
        store = self._redis_target.open()
        try:
            with one_line_errors(), gc_disabled():
                ranges = self._shared(store, *part.share) if part.share else part.ranges
                for each in ranges:
                    for rows in self._table.read(store, each, self._bounds):
                        yield from map(self._decode, split_large(rows))
        finally:
            store.close()

    def _planned(self, store: Store) -> list[BatchPartition]:
        named = [each for each in self._selector.names if self._allows(each)]
        # Each queue is split into as many ranges as there are tasks, so that all tasks share a
        # large queue among small ones.
        ranges = [r for each in named for r in self._cut(store, each, self._partition_count)]
        if self._selector.has_patterns:
            found = list(islice(self._found(store), MAX_PLANNED + 1))
            if len(found) > MAX_PLANNED:
                return [
                    BatchPartition(share=(each, self._partition_count))
                    for each in range(self._partition_count)
                ]
            for each in dict.fromkeys(found):
                if each not in named:
                    ranges += self._cut_if_there(store, each, self._partition_count)
        return _distribute(ranges, self._partition_count)

    def _found(self, store: Store) -> Iterator[str]:
        for name in self._table.names(store):
            if self._selector.includes(name) and self._allows(name):
                yield name

    def _shared(self, store: Store, index: int, of: int) -> Iterator[Range]:
        finder = self._redis_target.open()
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
    """A `BatchReader` that pushes filters down. For tables used in one place of one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Store the bounds that the filters imply; Spark still applies all filters."""
        self._bounds = bounds_of(filters)
        return filters


def batch_reader(options: SourceOptions, table: Table, decode: Decode = undecoded) -> BatchReader:
    """Return the reader of *table* for the options."""
    kind = PushdownReader if options.flag("pushdown", default=False) else BatchReader
    return kind(
        table, options.redis_target(), options.queue_selector(), options.partition_count(), decode
    )


def _distribute(ranges: Sequence[Range], partition_count: int) -> list[BatchPartition]:
    """Distribute *ranges* over at most *partition_count* tasks; at least one, maybe empty."""
    dealt = [ranges[first::partition_count] for first in range(min(partition_count, len(ranges)))]
    return [BatchPartition(each) for each in dealt] or [BatchPartition()]
