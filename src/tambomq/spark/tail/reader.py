"""Streaming reads of Redis streams: each micro-batch has the entries added since the last one.

Nothing is consumed. Spark's checkpoint stores the offsets (see `tail_offsets`), and reading a range
again gives the same rows, as long as its entries are kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tambomq.errors import EntriesLost, SettingsError, WrongType
from tambomq.spark.core.batch import Decode, undecoded
from tambomq.spark.core.options import QueueSelector, RedisTarget, SourceOptions
from tambomq.spark.core.paging import gc_disabled, split_large
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.core.stream_cuts import number, text
from tambomq.spark.core.table import ColumnBounds, Range, Table
from tambomq.spark.tail import offsets as tail_offsets
from tambomq.spark.tail import ops as tail_ops
from tambomq.spark.tail import plan as tail_plan
from tambomq.spark.tail.offsets import EARLIEST, START, StreamOffset, StreamState
from tambomq.spark.tail.options import TailOptions
from tambomq.store.call import results
from tambomq.store.sync import Store

MAX_QUEUES: Final = 10_000
"""Limit of queues: the offsets of all of them are in every batch and progress report."""

log = logging.getLogger(__name__)


class TailTable(Table, Protocol):
    """A table whose queues are Redis streams; *low* and *high* of its ranges are ids.

    *low* is ``-`` or an id with ``(`` before it; *high* is an id, and in the range.
    """

    def key(self, queue: str) -> str:
        """Return the key of the stream."""


class TailPartition(InputPartition):
    """Ranges for one task, each with its stream's count of removed entries when planned."""

    def __init__(self, ranges: Sequence[tuple[Range, int]]) -> None:
        self.ranges = tuple(ranges)


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new entries of *table* from the queues of *selector*."""

    def __init__(
        self,
        table: TailTable,
        redis_target: RedisTarget,
        selector: QueueSelector,
        options: TailOptions | None = None,
        decode: Decode = undecoded,
    ) -> None:
        self._table, self._redis_target, self._selector = table, redis_target, selector
        self._options, self._decode = options or TailOptions(), decode
        self._store: Store | None = None
        self._found: frozenset[str] = frozenset()
        self._unsound: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        self._pinned: dict[str, Any] | None = None
        self._target: dict[str, StreamOffset] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Connections cannot be sent to workers.
        return {**self.__dict__, "_store": None}

    # ── on the driver ────────────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the offset at which a new query begins."""
        if self._options.starting == EARLIEST:
            return {}
        with one_line_errors():
            named = () if isinstance(self._options.starting, str) else self._options.starting
            state = self._seen(sorted({*self._queues(), *named}))
            offsets = {
                queue: tail_plan.begin(self._open(), self._table.key(queue), given, stream)
                for queue, stream in state.items()
                if (given := self._options.begin(queue)) != EARLIEST
            }
        self._pinned = tail_offsets.encode(offsets)
        return self._pinned

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return the limit of rows per batch."""
        return ReadMaxRows(self._options.max_rows) if self._options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the end offset of the next batch; *start* if nothing is new."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None and pinned == start:
            # Spark stores the end of each batch, but not the start of the first one. So the first
            # batch is empty: a query that died in it would otherwise restart at another offset.
            return start
        with one_line_errors():
            offsets = tail_offsets.decode(start)
            state = self._seen(sorted({*self._queues(), *offsets}))
            lost = self._missing(offsets, state)
            goals = {queue: self._goal(queue, stream) for queue, stream in state.items()}
            if isinstance(limit, ReadMaxRows):
                goals = self._limited(offsets, goals, state, limit.max_rows)
        after = {
            queue: tail_offsets.advance(offsets.get(queue, START), end, lost.get(queue, 0))
            for queue, end in goals.items()
        }
        return tail_offsets.encode({**offsets, **{q: m for q, m in after.items() if m.id}})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Fix the current ends of all streams as the end of the query."""
        with one_line_errors():
            state = self._seen(self._queues())
        self._target = {queue: stream.end for queue, stream in state.items()}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the ends of all streams, which Spark shows in a query's progress."""
        with one_line_errors():
            state = self._seen(self._queues())
        return tail_offsets.encode({q: stream.end for q, stream in state.items() if stream.last})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch, one per task."""
        with one_line_errors():
            low, high = tail_offsets.decode(start), tail_offsets.decode(end)
            new = [q for q, offset in high.items() if offset.id > low.get(q, START).id]
            state = self._seen(new)
            self._missing(low, state, {q: high[q].lost - low.get(q, START).lost for q in new})
            count = -(-self._options.partition_count // max(1, len(new)))
            found = [
                (Range(queue, *edges), state[queue].removed)
                for queue in new
                for edges in tail_plan.ranges(
                    self._open(),
                    self._table.key(queue),
                    (low.get(queue, START), high[queue]),
                    state[queue],
                    count,
                )
            ]
        return [
            TailPartition(found[at :: self._options.partition_count])
            for at in range(min(self._options.partition_count, len(found)))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: entries that were read stay in their stream."""

    def stop(self) -> None:
        """Close the connection."""
        if self._store is not None:
            self._store.close()

    # ── on the workers ───────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part: Any = partition
        store = self._redis_target.open()
        try:
            with one_line_errors(), gc_disabled():
                for each, removed in part.ranges:
                    for rows in self._table.read(store, each, ColumnBounds()):
                        yield from map(self._decode, split_large(rows))
                    self._check_kept(store, each, removed)
        finally:
            store.close()

    def _check_kept(self, store: Store, part: Range, removed: int) -> None:
        """Report entries that were removed from *part* while it was read."""
        state = store.run(tail_ops.state(self._table.key(part.queue)))
        if state.removed == removed:
            return
        low = 0 if part.low == "-" else number(part.low.lstrip("("))
        # A range from the start of the stream begins with the first entry that is left.
        kept = number(part.high) if not low else low + 1
        if state.first is None or state.first > kept:
            self._report_loss(part.queue, "entries were removed while they were read")

    # ── queues ───────────────────────────────────────────────────────────────

    def _queues(self) -> list[str]:
        """Return the selected queues; looks for new ones every few seconds."""
        due = (
            self._looked_at is None
            or time.monotonic() - self._looked_at >= self._options.look_every_s
        )
        if self._selector.has_patterns and due:
            names = filter(self._selector.includes, self._table.names(self._open()))
            found = set(islice(names, MAX_QUEUES + 1))
            if len(found) > MAX_QUEUES:
                raise SettingsError(f"more than {MAX_QUEUES} queues to follow: name fewer")
            self._found |= found
            self._looked_at = time.monotonic()
        return sorted({*self._selector.names, *self._found})

    def _seen(self, queues: Sequence[str]) -> dict[str, StreamState]:
        calls = [tail_ops.state(self._table.key(queue)) for queue in queues]
        outcomes = self._open().outcomes(calls) if calls else []
        return dict(zip(queues, map(self._stream, queues, outcomes), strict=True))

    def _stream(self, queue: str, outcome: Any) -> StreamState:
        # One key of a wrong type must not stop all other queues, unless the queue was named.
        if isinstance(outcome, WrongType) and queue not in self._selector.names:
            if queue not in self._unsound:
                log.warning("queue %r is skipped: %s", queue, outcome, extra={"queue": queue})
            self._unsound |= {queue}
            return StreamState()
        self._unsound -= {queue}
        stream: StreamState = results([outcome])[0]
        return stream

    def _open(self) -> Store:
        if self._store is None:
            self._store = self._redis_target.open()
        return self._store

    # ── start and end of a batch ─────────────────────────────────────────────

    def _goal(self, queue: str, state: StreamState) -> StreamOffset:
        """Return the furthest offset that a batch may end at now."""
        if self._target is None:
            return state.end
        return min(state.end, self._target.get(queue, START), key=lambda offset: offset.id)

    def _limited(
        self,
        offsets: Mapping[str, StreamOffset],
        goals: Mapping[str, StreamOffset],
        state: Mapping[str, StreamState],
        max_rows: int,
    ) -> dict[str, StreamOffset]:
        backlog = {
            queue: tail_offsets.backlog_bound(offsets.get(queue, START), state[queue])
            for queue, goal in goals.items()
            if goal.id > offsets.get(queue, START).id
        }
        end = tail_plan.counted_end if self._options.exact_rows else tail_plan.end
        return {
            queue: end(
                self._open(),
                self._table.key(queue),
                (offsets.get(queue, START), goals[queue]),
                state[queue],
                rows,
            )
            for queue, rows in tail_offsets.share_rows(offsets, backlog, max_rows).items()
        }

    # ── lost entries ─────────────────────────────────────────────────────────

    def _missing(
        self,
        offsets: Mapping[str, StreamOffset],
        state: Mapping[str, StreamState],
        counted: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Count the entries of each queue that were removed unread, beyond those *counted*."""
        found = {}
        for queue, stream in state.items():
            offset = offsets.get(queue, START)
            count = tail_offsets.lost(offset, stream)
            if count > (counted or {}).get(queue, 0):
                what = f"at least {count} entries after {text(offset.id)} were removed unread"
                first = "no entry" if stream.first is None else text(stream.first)
                self._report_loss(queue, f"{what}; the first that is left: {first}")
                found[queue] = count
        return found

    def _report_loss(self, queue: str, what: str) -> None:
        if self._options.fail_on_loss:
            raise EntriesLost(
                queue,
                f"queue {queue!r}: {what}. Keep more entries or read more often; "
                "to go on with what is left, set failOnDataLoss to false",
            )
        log.warning("queue %r: %s", queue, what, extra={"queue": queue})


def tail_reader(options: SourceOptions, table: TailTable, decode: Decode = undecoded) -> TailReader:
    """Return the reader that follows *table*, with the `TailOptions` in *options*."""
    chosen = TailOptions.from_options(options)
    return TailReader(table, options.redis_target(), options.queue_selector(), chosen, decode)
