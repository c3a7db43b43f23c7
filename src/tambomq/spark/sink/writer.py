"""Writes rows to queues in chunks, each chunk once, even if Spark repeats a task or batch.

An invalid row is an error, and nothing of its chunk is written; with ``onError`` = ``skip``, only
that row is skipped, and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

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
from tambomq.spark.core.options import RedisTarget, SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.sink import durable, fence
from tambomq.spark.sink.durable import DURABLE, durability_of
from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.rows import Layout, Rows, layout
from tambomq.spark.sink.target import Packer, SinkTarget
from tambomq.store.call import Call, Plan
from tambomq.store.durability.level import Durability
from tambomq.store.sync import Store

COMMON: Final = ("url", "queue", "onError", "run", "checkpointLocation", "queryName", *DURABLE)
"""Write options of every format; the one for a checkpoint and the next are Spark's own."""

_SHOWN: Final = 5
_AHEAD: Final = 2
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class WriteResult(WriterCommitMessage):
    """The counts of one task."""

    query: str
    written: int = 0
    repeated: int = 0
    """Rows that were written before, by an earlier run of the task or batch."""
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)
    """The reasons of the first skipped rows."""
    queues: set[str] = field(default_factory=set)


class ChunkPart(NamedTuple):
    """The rows of a chunk that go to one queue."""

    queue: str
    row_count: int
    call: Call[int]


@dataclass(frozen=True, slots=True)
class Sink:
    """The target, layout and options that both writers share."""

    target: SinkTarget
    layout: Layout
    redis_target: RedisTarget
    skips: bool = False
    run: str | None = None
    durability: Durability | None = None

    def checked(self) -> Self:
        """Return itself; raise `SettingsError` if the default queue cannot be written to.

        Raises `DurabilityUnsupported` if nothing can be written as durably as asked for.
        """
        store, why = self.redis_target.open(), None
        try:
            if self.target.queue is not None:
                why = self.target.packer(store, self.layout).refusal(self.target.queue)
            if self.durability is not None:
                durable.check(store, self.durability)
        finally:
            store.close()
        if why is not None:
            raise SettingsError(f"format {self.target.source!r}: {why}")
        return self

    def write(self, task: Task, batches: Iterable[pa.RecordBatch]) -> WriteResult:
        """Write the rows of one task, unless they were written before. Raises `NotDurable`."""
        done, store = WriteResult(task.query), self.redis_target.open()
        written: dict[str, list[str]] = {}
        try:
            packer = self.target.packer(store, self.layout)
            with _ChunkPipeline(store, task, done) as pipeline:
                for chunk, rows in enumerate(self.layout.chunks(batches)):
                    queues = rows.columns.get(self.target.queue_column, ())
                    digest = fence.digest(rows.columns[self.layout.body], queues)
                    chunk_token = task.chunk_token(chunk, digest)
                    parts = self._parts(packer, task, chunk_token, rows, done)
                    for queue, _, _ in parts:
                        written.setdefault(queue, []).append(chunk_token.token)
                    pipeline.send(parts)
            if self.durability is not None:
                fences = {self.target.fence(q, task.query): written[q] for q in written}
                durable.confirm(store, self.durability, fences)
        finally:
            store.close()
        return done

    def _parts(
        self, packer: Packer, task: Task, chunk_token: ChunkToken, rows: Rows, done: WriteResult
    ) -> list[ChunkPart]:
        """Return a call for each queue; raise for invalid rows, or count them."""
        faults: dict[int, str] = {}
        good: list[tuple[str, list[Any]]] = []
        for queue, indexes in self._by_queue(rows).items():
            why = packer.refusal(queue) if queue else f"{self.target.queue_column} is null or empty"
            if why is not None:
                faults |= dict.fromkeys(indexes, why)
                continue
            whole = len(indexes) == len(rows)
            items, wrong = packer.pack(queue, rows if whole else rows.picked(indexes))
            if wrong:
                faults |= {indexes[index]: reason for index, reason in wrong.items()}
                items = [item for index, item in enumerate(items) if index not in wrong]
            if items:
                good.append((queue, items))
        if faults:
            self._refused(task, rows, faults, done)
        done.queues.update(queue for queue, _ in good)
        return [
            ChunkPart(queue, len(items), packer.call(queue, task, chunk_token, items))
            for queue, items in good
        ]

    def _by_queue(self, rows: Rows) -> Mapping[str, Sequence[int]]:
        """Return the row indexes of each queue; those without a queue are under ``''``."""
        own = self.target.queue or ""
        if self.target.queue_column not in self.layout.indexes:
            return {own: range(len(rows))}
        found: dict[str, list[int]] = {}
        for index, queue in enumerate(rows.get(self.target.queue_column)):
            found.setdefault(own if queue is None else queue, []).append(index)
        return found

    def _refused(self, task: Task, rows: Rows, faults: dict[int, str], done: WriteResult) -> None:
        shown = [f"row {rows.first + index}: {faults[index]}" for index in sorted(faults)[:_SHOWN]]
        if not self.skips:
            more = f", and {len(faults) - 1} more of them" if len(faults) > 1 else ""
            raise LocalProtocolError(
                f"format {self.target.source!r}: partition {task.partition}, {shown[0]}{more}; "
                f"nothing of its chunk of {len(rows)} rows was written"
            )
        done.skipped += len(faults)
        done.reasons += shown[: _SHOWN - len(done.reasons)]

    def fences(self, messages: Iterable[WriterCommitMessage | None]) -> list[str]:
        """Return the keys of all fences used, and log how many rows were skipped."""
        all_done = [each for each in messages if isinstance(each, WriteResult)]
        if skipped := sum(done.skipped for done in all_done):
            reasons = [reason for done in all_done for reason in done.reasons][:_SHOWN]
            _log.warning(
                "%s: %d rows were skipped, such as %r",
                self.target.source,
                skipped,
                "; ".join(reasons),
                extra={"format": self.target.source, "count": skipped},
            )
        return sorted({self.target.fence(q, done.query) for done in all_done for q in done.queues})


class _ChunkPipeline:
    """Sends chunks in a thread while the next is packed: one in flight, one queued behind it.

    A chunk is sent only after the one before it succeeded; after a failure no more are sent.
    """

    def __init__(self, store: Store, task: Task, done: WriteResult) -> None:
        self._store, self._task, self._done = store, task, done
        self._thread = ThreadPoolExecutor(1)
        self._in_flight = deque[tuple[list[int], Future[list[int]]]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            while error is None and self._in_flight:
                self._await_oldest()
        finally:
            self._thread.shutdown()

    def send(self, parts: Sequence[ChunkPart]) -> None:
        """Send *parts* once the earlier ones have succeeded; raise the error of those."""
        if len(self._in_flight) == _AHEAD:
            self._await_oldest()
        if parts:
            counts, packed = [part.row_count for part in parts], [part.call for part in parts]
            before = self._in_flight[-1][1] if self._in_flight else None
            self._in_flight.append((counts, self._thread.submit(self._send_after, before, packed)))

    def _send_after(self, before: Future[list[int]] | None, calls: list[Call[int]]) -> list[int]:
        for reply in before.result() if before else ():
            self._task.settled(reply)
        return self._store.run_all(calls)

    def _await_oldest(self) -> None:
        counts, future = self._in_flight.popleft()
        for count, reply in zip(counts, future.result(), strict=True):
            if self._task.settled(reply):
                self._done.written += count
            else:
                self._done.repeated += count


class BatchWriter(DataSourceArrowWriter):
    """Appends rows once, however often Spark runs a task.

    With the option ``run``, a write that is repeated under the same name within a week writes
    nothing either, as ``foreachBatch`` needs.
    """

    def __init__(self, sink: Sink, task: Callable[[], Any] = TaskContext.get) -> None:
        self._sink, self._task = sink, task
        self._run = sink.run or letters(22)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Write the rows of one task."""
        return self._sink.write(fence.batch_task(self._task(), self._run), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let the fences expire, unless the write has a name and may be repeated."""
        fences = self._sink.fences(messages)
        if self._sink.run is None:
            _follow(self._sink.redis_target, fence.outlive_all(fences))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each batch once, however often the task, batch or query is run.

    Aborting a batch needs no action: chunks already written stay, and the fence keeps them from
    being written again.
    """

    def __init__(self, sink: Sink, task: Callable[[], Any] = TaskContext.get) -> None:
        with one_line_errors():
            if sink.run is not None:
                raise SettingsError("run is a name for a batch write; a stream has its checkpoint")
        self._sink, self._task = sink, task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteResult:
        """Write the rows of one task."""
        return self._sink.write(fence.stream_task(self._task()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Delete the tokens of earlier batches; Spark may still repeat this one."""
        _follow(self._sink.redis_target, fence.prune(self._sink.fences(messages), batchId))


def sink_of(
    target_of: Callable[[SourceOptions], SinkTarget],
    options: SourceOptions,
    schema: StructType,
    *,
    overwrite: bool,
) -> Sink:
    """Return the sink for the options; raise `SettingsError` if they are invalid."""
    target = target_of(options)
    if overwrite:
        raise SettingsError(f"format {target.source!r}: rows can only be appended: use mode append")
    columns = layout(target.source, target.fields, target.bodies, schema)
    if target.queue is None and target.queue_column not in columns.indexes:
        raise SettingsError(
            f"format {target.source!r}: neither an option nor a column {target.queue_column} "
            "says where rows go"
        )
    skips = options.one_of("onError", ("fail", "skip"), "fail") == "skip"
    run, level = options.text("run", None), durability_of(options)
    return Sink(target, columns, options.redis_target(), skips, run, level)


def _follow(redis_target: RedisTarget, plan: Plan[Any]) -> None:
    store = redis_target.open()
    try:
        store.follow(plan)
    finally:
        store.close()
