"""Tables that are Redis streams, followed: what is new in each micro-batch, once each.

Nothing is consumed. Spark's checkpoint says how far a query has come (see `tail_offsets`), and a
range that is read again gives the same rows, for as long as its entries are kept.
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
from tambomq.spark import tail_offsets, tail_ops, tail_plan
from tambomq.spark.batch import Decode, as_it_is
from tambomq.spark.options import Given, Place, Wanted
from tambomq.spark.paging import bounded, undisturbed
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.stream_cuts import number, text
from tambomq.spark.table import Bounds, Range, Table
from tambomq.spark.tail_offsets import EARLIEST, START, Mark, Stream
from tambomq.spark.tail_options import Following
from tambomq.store.call import results
from tambomq.store.sync import Store

MOST_QUEUES: Final = 10_000
"""An offset names each queue, in every batch and every line of progress."""

log = logging.getLogger(__name__)


class TailTable(Table, Protocol):
    """A table whose queues are Redis streams; *low* and *high* of its ranges are ids.

    *low* is ``-`` or an id with ``(`` before it; *high* is an id, and in the range.
    """

    def key(self, queue: str) -> str:
        """Return the key of the stream."""


class Part(InputPartition):
    """Ranges for one task, each with how many entries its stream had lost when it was planned."""

    def __init__(self, ranges: Sequence[tuple[Range, int]]) -> None:
        self.ranges = tuple(ranges)


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows *table* of the queues that are *wanted*."""

    def __init__(
        self,
        table: TailTable,
        place: Place,
        wanted: Wanted,
        how: Following | None = None,
        decode: Decode = as_it_is,
    ) -> None:
        self._table, self._place, self._wanted = table, place, wanted
        self._how, self._decode = how or Following(), decode
        self._store: Store | None = None
        self._found: frozenset[str] = frozenset()
        self._unsound: frozenset[str] = frozenset()
        self._looked_at: float | None = None
        self._pinned: dict[str, Any] | None = None
        self._target: dict[str, Mark] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Sockets do not travel to the workers.
        return {**self.__dict__, "_store": None}

    # ── on the driver ────────────────────────────────────────────────────────

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where a new query begins."""
        if self._how.starting == EARLIEST:
            return {}
        with told_in_one_line():
            named = () if isinstance(self._how.starting, str) else self._how.starting
            seen = self._seen(sorted({*self._queues(), *named}))
            marks = {
                queue: tail_plan.begin(self._open(), self._table.key(queue), told, stream)
                for queue, stream in seen.items()
                if (told := self._how.begin(queue)) != EARLIEST
            }
        self._pinned = tail_offsets.written(marks)
        return self._pinned

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return how much a batch may have."""
        return ReadMaxRows(self._how.most_rows) if self._how.most_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where the next batch ends; *start* if nothing is new."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None and pinned == start:
            # Spark writes down where a batch ends, never where the first one begins. So the first
            # has no rows: a query that dies in it would else begin again somewhere else.
            return start
        with told_in_one_line():
            marks = tail_offsets.read(start)
            seen = self._seen(sorted({*self._queues(), *marks}))
            gone = self._missing(marks, seen)
            goals = {queue: self._goal(queue, stream) for queue, stream in seen.items()}
            if isinstance(limit, ReadMaxRows):
                goals = self._limited(marks, goals, seen, limit.max_rows)
        after = {
            queue: tail_offsets.moved(marks.get(queue, START), end, gone.get(queue, 0))
            for queue, end in goals.items()
        }
        return tail_offsets.written({**marks, **{q: m for q, m in after.items() if m.id}})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Let what is there now be all there is."""
        with told_in_one_line():
            seen = self._seen(self._queues())
        self._target = {queue: stream.end for queue, stream in seen.items()}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return where all is read: what a query's progress compares itself with."""
        with told_in_one_line():
            seen = self._seen(self._queues())
        return tail_offsets.written({q: stream.end for q, stream in seen.items() if stream.last})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a batch reads."""
        with told_in_one_line():
            low, high = tail_offsets.read(start), tail_offsets.read(end)
            new = [q for q, mark in high.items() if mark.id > low.get(q, START).id]
            seen = self._seen(new)
            self._missing(low, seen, {q: high[q].lost - low.get(q, START).lost for q in new})
            count = -(-self._how.parts // max(1, len(new)))
            found = [
                (Range(queue, *edges), seen[queue].removed)
                for queue in new
                for edges in tail_plan.ranges(
                    self._open(),
                    self._table.key(queue),
                    (low.get(queue, START), high[queue]),
                    seen[queue],
                    count,
                )
            ]
        return [
            Part(found[at :: self._how.parts]) for at in range(min(self._how.parts, len(found)))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what was read stays where it is."""

    def stop(self) -> None:
        """Hang up."""
        if self._store is not None:
            self._store.close()

    # ── on the workers ───────────────────────────────────────────────────────

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part: Any = partition
        store = self._place.open()
        try:
            with told_in_one_line(), undisturbed():
                for each, removed in part.ranges:
                    for rows in self._table.read(store, each, Bounds()):
                        yield from map(self._decode, bounded(rows))
                    self._check_kept(store, each, removed)
        finally:
            store.close()

    def _check_kept(self, store: Store, part: Range, removed: int) -> None:
        """See that nothing was removed from *part* while it was read."""
        seen = store.run(tail_ops.state(self._table.key(part.queue)))
        if seen.removed == removed:
            return
        low = 0 if part.low == "-" else number(part.low.lstrip("("))
        # Who begins with the first entry begins with the first that is left.
        kept = number(part.high) if not low else low + 1
        if seen.first is None or seen.first > kept:
            self._tell(part.queue, "entries were removed while they were read")

    # ── queues ───────────────────────────────────────────────────────────────

    def _queues(self) -> list[str]:
        """Return those that are wanted; looks for new ones now and then."""
        due = (
            self._looked_at is None or time.monotonic() - self._looked_at >= self._how.look_every_s
        )
        if self._wanted.has_patterns and due:
            names = filter(self._wanted.includes, self._table.names(self._open()))
            found = set(islice(names, MOST_QUEUES + 1))
            if len(found) > MOST_QUEUES:
                raise SettingsError(f"more than {MOST_QUEUES} queues to follow: name fewer")
            self._found |= found
            self._looked_at = time.monotonic()
        return sorted({*self._wanted.names, *self._found})

    def _seen(self, queues: Sequence[str]) -> dict[str, Stream]:
        calls = [tail_ops.state(self._table.key(queue)) for queue in queues]
        outcomes = self._open().outcomes(calls) if calls else []
        return dict(zip(queues, map(self._stream, queues, outcomes), strict=True))

    def _stream(self, queue: str, outcome: Any) -> Stream:
        # Whoever can write a key could else stop all other queues. What was named is an error.
        if isinstance(outcome, WrongType) and queue not in self._wanted.names:
            if queue not in self._unsound:
                log.warning("queue %r is left out: %s", queue, outcome)
            self._unsound |= {queue}
            return Stream()
        self._unsound -= {queue}
        stream: Stream = results([outcome])[0]
        return stream

    def _open(self) -> Store:
        if self._store is None:
            self._store = self._place.open()
        return self._store

    # ── where to begin and to end ────────────────────────────────────────────

    def _goal(self, queue: str, seen: Stream) -> Mark:
        """Return the last that a batch may have now."""
        if self._target is None:
            return seen.end
        return min(seen.end, self._target.get(queue, START), key=lambda mark: mark.id)

    def _limited(
        self,
        marks: Mapping[str, Mark],
        goals: Mapping[str, Mark],
        seen: Mapping[str, Stream],
        most: int,
    ) -> dict[str, Mark]:
        backlog = {
            queue: tail_offsets.at_most(marks.get(queue, START), seen[queue])
            for queue, goal in goals.items()
            if goal.id > marks.get(queue, START).id
        }
        end = tail_plan.counted_end if self._how.exact_rows else tail_plan.end
        return {
            queue: end(
                self._open(),
                self._table.key(queue),
                (marks.get(queue, START), goals[queue]),
                seen[queue],
                rows,
            )
            for queue, rows in tail_offsets.shares(marks, backlog, most).items()
        }

    # ── what is missing ──────────────────────────────────────────────────────

    def _missing(
        self,
        marks: Mapping[str, Mark],
        seen: Mapping[str, Stream],
        counted: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Return how many entries of each queue were removed unread, if that is no error.

        Of those that were *counted* before nothing is told again.
        """
        found = {}
        for queue, stream in seen.items():
            mark = marks.get(queue, START)
            count = tail_offsets.lost(mark, stream)
            if count > (counted or {}).get(queue, 0):
                left = "none is left" if stream.first is None else f"{text(stream.first)} is left"
                what = f"at least {count} entries behind {text(mark.id)} were removed unread"
                self._tell(queue, f"{what}; of all, {left}")
                found[queue] = count
        return found

    def _tell(self, queue: str, what: str) -> None:
        if self._how.fail_on_loss:
            raise EntriesLost(
                queue,
                f"queue {queue!r}: {what}. Keep more entries or read more often; "
                "to go on with what is left, set failOnDataLoss to false",
            )
        log.warning("queue %r: %s", queue, what)


def tail_reader(given: Given, table: TailTable, decode: Decode = as_it_is) -> TailReader:
    """Return what follows *table*, as the options of a format say: `tail_options` has them."""
    return TailReader(table, given.place(), given.wanted(), Following.given(given), decode)
