"""Writes rows into queues: in chunks, each of them once, whatever is run again.

A row that breaks a rule is told with its reason, and nothing of its chunk is written; or it alone
is left out (``onError`` = ``skip``), and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tambomq.errors import LocalProtocolError, SettingsError
from tambomq.ids import letters
from tambomq.spark import fence
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given, Place
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink_rows import Layout, Rows, layout
from tambomq.spark.sink_target import Packer, Target
from tambomq.store.call import Call
from tambomq.store.sync import Store

COMMON: Final = ("url", "queue", "onError", "run", "checkpointLocation", "queryName")
"""What every format takes when it is written; the last two are Spark's own, and come along."""

_SHOWN: Final = 5
_AT_ONCE: Final = 500
_AHEAD: Final = 2
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """What one task did."""

    query: str
    written: int = 0
    repeated: int = 0
    """Rows that were there already: of a task or a batch that is run again."""
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why, of the first that were skipped."""
    queues: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go and how; what both writers share."""

    target: Target
    layout: Layout
    place: Place
    skips: bool = False
    run: str | None = None

    def checked(self) -> Self:
        """Return it if rows that do not say where they go can go somewhere; else raise why not."""
        if self.target.queue is not None:
            store = self.place.open()
            try:
                why = self.target.packer(store, self.layout).refusal(self.target.queue)
            finally:
                store.close()
            if why is not None:
                raise SettingsError(f"format {self.target.source!r}: {why}")
        return self

    def write(self, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of one task; chunks that were written before are passed over."""
        done, store = Written(task.query), self.place.open()
        try:
            packer = self.target.packer(store, self.layout)
            with _Flight(store, task, done) as flight:
                for chunk, rows in enumerate(self.layout.chunks(batches)):
                    queues = rows.columns.get(self.target.queue_column, ())
                    digest = fence.digest(rows.columns[self.layout.body], queues)
                    mark = task.mark(chunk, digest)
                    flight.send(self._calls(packer, task, mark, rows, done))
        finally:
            store.close()
        return done

    def _calls(
        self, packer: Packer, task: Task, mark: Mark, rows: Rows, done: Written
    ) -> list[tuple[int, Call[int]]]:
        """Return calls, and how many rows each writes; raise or count what cannot be written."""
        faults: dict[int, str] = {}
        good: list[tuple[str, list[Any]]] = []
        for queue, places in self._by_queue(rows).items():
            why = packer.refusal(queue) if queue else f"{self.target.queue_column} is null or empty"
            if why is not None:
                faults |= dict.fromkeys(places, why)
                continue
            whole = len(places) == len(rows)
            items, wrong = packer.pack(queue, rows if whole else rows.picked(places))
            if wrong:
                faults |= {places[place]: reason for place, reason in wrong.items()}
                items = [item for place, item in enumerate(items) if place not in wrong]
            if items:
                good.append((queue, items))
        if faults:
            self._refused(task, rows, faults, done)
        done.queues.update(queue for queue, _ in good)
        return [(len(items), packer.call(queue, task, mark, items)) for queue, items in good]

    def _by_queue(self, rows: Rows) -> Mapping[str, Sequence[int]]:
        """Return which rows go where; those that go nowhere go to ``''``."""
        own = self.target.queue or ""
        if self.target.queue_column not in self.layout.places:
            return {own: range(len(rows))}
        found: dict[str, list[int]] = {}
        for place, queue in enumerate(rows.get(self.target.queue_column)):
            found.setdefault(own if queue is None else queue, []).append(place)
        return found

    def _refused(self, task: Task, rows: Rows, faults: dict[int, str], done: Written) -> None:
        told = [f"row {rows.first + place}: {faults[place]}" for place in sorted(faults)[:_SHOWN]]
        if not self.skips:
            more = f", and {len(faults) - 1} more of them" if len(faults) > 1 else ""
            raise LocalProtocolError(
                f"format {self.target.source!r}: partition {task.partition}, {told[0]}{more}; "
                f"nothing of its chunk of {len(rows)} rows was written"
            )
        done.skipped += len(faults)
        done.reasons += told[: _SHOWN - len(done.reasons)]

    def fences(self, messages: Iterable[WriterCommitMessage | None]) -> list[str]:
        """Return the fences that were used, and tell of what was left out."""
        all_done = [each for each in messages if isinstance(each, Written)]
        if skipped := sum(done.skipped for done in all_done):
            reasons = [reason for done in all_done for reason in done.reasons][:_SHOWN]
            _log.warning(
                "%s: %d rows were left out, such as %r",
                self.target.source,
                skipped,
                "; ".join(reasons),
            )
        return sorted({self.target.fence(q, done.query) for done in all_done for q in done.queues})


class _Flight:
    """Keeps chunks on their way while the next is being packed: one with the server, one behind.

    None is sent before the one before it has arrived, and none after one that did not.
    """

    def __init__(self, store: Store, task: Task, done: Written) -> None:
        self._store, self._task, self._done = store, task, done
        self._thread = ThreadPoolExecutor(1)
        self._under_way = deque[tuple[list[int], Future[list[int]]]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            while error is None and self._under_way:
                self._land()
        finally:
            self._thread.shutdown()

    def send(self, calls: Sequence[tuple[int, Call[int]]]) -> None:
        """Send calls as soon as those before them have arrived; raise what these came to."""
        if len(self._under_way) == _AHEAD:
            self._land()
        if calls:
            counts, packed = [count for count, _ in calls], [call for _, call in calls]
            before = self._under_way[-1][1] if self._under_way else None
            self._under_way.append((counts, self._thread.submit(self._go, before, packed)))

    def _go(self, before: Future[list[int]] | None, calls: list[Call[int]]) -> list[int]:
        for reply in before.result() if before else ():
            self._task.settled(reply)
        return self._store.run_all(calls)

    def _land(self) -> None:
        counts, future = self._under_way.popleft()
        for count, reply in zip(counts, future.result(), strict=True):
            if self._task.settled(reply):
                self._done.written += count
            else:
                self._done.repeated += count


class BatchWriter(DataSourceArrowWriter):
    """Appends rows once, however often a task is run.

    A write that the caller names (``run``) is made once, too, if it is made again within a week:
    what ``foreachBatch`` needs.
    """

    def __init__(self, sink: Sink, task: Callable[[], Any] = TaskContext.get) -> None:
        self._sink, self._task = sink, task
        self._run = sink.run or letters(22)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return self._sink.write(fence.batch_task(self._task(), self._run), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let go of the fences of a write that nobody can make again."""
        fences = self._sink.fences(messages)
        if self._sink.run is None:
            _ask(self._sink.place, [fence.outlive(key) for key in fences])


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each batch once, however often a task, the batch or the query is run.

    There is nothing to do when a batch is aborted: what of it is written stays, and its fences
    keep it from being written again.
    """

    def __init__(self, sink: Sink, task: Callable[[], Any] = TaskContext.get) -> None:
        with told_in_one_line():
            if sink.run is not None:
                raise SettingsError("run is a name for a batch write; a stream has its checkpoint")
        self._sink, self._task = sink, task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task."""
        return self._sink.write(fence.stream_task(self._task()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Forget the batches before this one; this one may still come again."""
        _ask(self._sink.place, [fence.prune(key, batchId) for key in self._sink.fences(messages)])


def sink_of(
    target_of: Callable[[Given], Target], given: Given, schema: StructType, *, overwrite: bool
) -> Sink:
    """Return the sink that the options come to; raise `SettingsError` or what else is wrong."""
    target = target_of(given)
    if overwrite:
        raise SettingsError(f"format {target.source!r}: rows can only be appended: use mode append")
    places = layout(target.source, target.fields, target.bodies, schema)
    if target.queue is None and target.queue_column not in places.places:
        raise SettingsError(
            f"format {target.source!r}: neither an option nor a column {target.queue_column} "
            "says where rows go"
        )
    skips = given.one_of("onError", ("fail", "skip"), "fail") == "skip"
    return Sink(target, places, given.place(), skips, given.text("run", None))


def _ask(place: Place, calls: Sequence[Call[Any]]) -> None:
    store = place.open()
    try:
        for first in range(0, len(calls), _AT_ONCE):
            store.run_all(calls[first : first + _AT_ONCE])
    finally:
        store.close()
