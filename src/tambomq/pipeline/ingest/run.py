"""The pipeline: a Spark streaming query that follows all queues and fills the lake in batches.

Spark calls `Pipeline._write_batch` for each batch::

     events, dead letters, journals in Redis        depths of the queues in Redis
        │ sources: one row for each entry               │ depths, snapshots
        ▼                                               ▼
     LakeBatchWriter (batch) ◄───────────────── DepthSnapshot
        │ silver, lifecycles: states of jobs            │ alone, while no batch comes
        │ gold: sums per minute                         │
        ▼                                               ▼
     one entry of the lake's log: now the batch counts
        │
        ▼
     offsets are committed to the journals, so that these can be trimmed

A *journal* is an append-only record of the messages that pass through a queue.
One pipeline fills a lake: it runs under the lake's lock. Spark keeps the offsets (its checkpoint)
and repeats a batch that failed, or whose commit it did not log. The lake's log records the last
batch that the lake has, and the offset at which that ended, so each is written once. A failure
after the log entry loses nothing: the next batch, or the next start, commits the offsets to the
journals.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tambomq import errors
from tambomq.errors import LakeError, SettingsError, StoreError, TamboError
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.pipeline.ingest import depths, sources
from tambomq.pipeline.ingest.batch import LakeBatchWriter, LifecycleTimeouts, batch_info
from tambomq.pipeline.ingest.progress import Progress
from tambomq.pipeline.ingest.snapshots import Snapshots
from tambomq.pipeline.ingest.sources import JOURNAL, FollowedStreams, PipelineSource, Stream
from tambomq.pipeline.lake.lake import Lake, is_full
from tambomq.spark.core.stream_cuts import text
from tambomq.spark.launch import conf
from tambomq.spark.tail import offsets as tail_offsets
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 400_000
"""Larger batches save little time, and need more memory to sort."""
POLL_EVERY_S: Final = 1
SETTINGS: Final = {
    # All tables use days in UTC, as compaction, retention and snapshots do.
    conf.ZONE: "UTC",
    # Else Spark starts a job to list the files, of which a lake soon has many.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Few other readers of Parquet know Spark's default, INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}
DEFAULT_TIMEOUTS: Final = LifecycleTimeouts(watermark_delay_ms=60_000, give_up_ms=7 * 86_400_000)
_OURS: Final = re.compile(r"tambomq\.errors\.(\w+): ([^\n]+)")


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Options of a pipeline: which queues it follows, and how."""

    url: str
    queues: Sequence[str] = ()
    """Patterns like ``chasqui:*``; all, if there are none."""
    once: bool = False
    """Whether to end once everything that existed at the start has been read."""
    every_s: float = 10.0
    """How often a batch starts."""
    batch_rows: int = BATCH_ROWS
    timeouts: LifecycleTimeouts = DEFAULT_TIMEOUTS
    fail_on_loss: bool = True
    snapshots: bool = True
    """Whether to count the depths of the queues with each batch."""


def count_streams(options: PipelineOptions) -> int:
    """Return the number of streams there are to follow now.

    Raises `StoreUnavailable`, and `SettingsError` for a pattern that can match no queue.
    """
    wanted = sources.select_queues(options.queues)
    store = Store(options.url)
    try:
        return len(set(filter(wanted.includes, FollowedStreams(wanted).names(store))))
    finally:
        store.close()


def unfollowed(options: PipelineOptions) -> list[str]:
    """Return the queues, as ``protocol:queue``, without events or a journal to follow."""
    store = Store(options.url)
    try:
        found = depths.queue_depths(store, sources.select_queues(options.queues))
    finally:
        store.close()
    return sorted(f"{each.protocol}:{each.queue}" for each in found if not each.followed)


class Pipeline:
    """Fills *lake* as *options* say, once it is started."""

    def __init__(self, spark: SparkSession, lake: Lake, options: PipelineOptions) -> None:
        self._spark, self._lake, self._options = spark, lake, options
        self._wanted = sources.select_queues(options.queues)
        self._snapshots = Snapshots(lake, options.url, self._wanted) if options.snapshots else None
        self._failure: BaseException | None = None
        self._writing = threading.Lock()
        """Held while a batch is written."""
        self._has_ended = False
        self.version = lake.log.version()

    @property
    def busy(self) -> bool:
        """Whether a batch is being written."""
        return self._writing.locked()

    def start(self) -> StreamingQuery:
        """Start the query, which runs in Spark's own threads, and return it."""
        cores = max(2, self._spark.sparkContext.defaultParallelism)
        for name, value in SETTINGS.items():
            self._spark.conf.set(name, value)
        self._spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        self._spark.dataSource.register(PipelineSource)
        self._commit_journals(self._stream_offsets())
        if not self.version.batches:
            _remove_empty_offsets(self._lake.checkpoint / "offsets")
        options = self._options
        source_options = {
            "url": options.url,
            "queue": json.dumps(self._wanted.patterns),
            "maxRowsPerBatch": str(options.batch_rows),
            "failOnDataLoss": str(options.fail_on_loss).lower(),
            "partitions": str(cores),
        }
        rows = self._spark.readStream.format(sources.NAME).options(**source_options).load()
        writer = rows.writeStream.queryName("pipeline").foreachBatch(self._write_batch)
        writer = writer.option("checkpointLocation", str(self._lake.checkpoint))
        if options.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(
            processingTime=f"{round(options.every_s * 1000)} milliseconds"
        ).start()

    def follow(self, is_to_end: Callable[[], bool]) -> Iterator[Progress]:
        """Run, and yield the progress of each batch; stop between two batches once *is_to_end*.

        Raises a `TamboError` with one line of text if the query failed.
        """
        try:
            query, last_batch = self.start(), -1
        except (PySparkException, Py4JError) as error:
            raise self._user_error(error) from error
        try:
            is_last = False
            while not is_last:
                is_last = _has_stopped(query) or (is_to_end() and not self.busy)
                for progress in map(Progress.from_spark, query.recentProgress):
                    if progress.batch > last_batch and progress.rows:
                        last_batch = progress.batch
                        yield progress
                self._snapshot_when_idle(at_end=is_last)
            # Read before `stop`: a batch that is interrupted by it is no failure.
            failure = self._failure or query.exception()
        finally:
            self._end(query)
        if failure is not None:
            raise self._user_error(failure) from failure

    def _end(self, query: StreamingQuery) -> None:
        """Stop *query*; when this returns, no batch of it is or will be written.

        Spark calls `_write_batch` in a thread of Python's, which may still commit when the query
        has stopped; by then the caller may have given up the lock of the lake.
        """
        self._has_ended = True
        try:
            if query.isActive:
                query.stop()
        finally:
            with self._writing:
                pass

    def _user_error(self, failure: BaseException) -> TamboError:
        if isinstance(failure, TamboError):
            return failure
        if is_full(failure):
            return LakeError(
                f"the disk of {self._lake.path} is full; the batch was not written: "
                "free some space and start again"
            )
        if ours := _OURS.search(str(failure)):
            kind = getattr(errors, ours[1], None)
            return (SettingsError if kind is SettingsError else LakeError)(ours[2].strip())
        lines = str(failure).strip().splitlines()
        return LakeError(lines[0] if lines else type(failure).__name__)

    def _write_batch(self, rows: DataFrame, number: int) -> None:
        with self._writing:
            if self._has_ended:
                # If this returned, Spark would count the batch as done.
                raise LakeError("the pipeline has ended: this batch is left for its next start")
            self._write(rows, number)

    def _write(self, rows: DataFrame, number: int) -> None:
        try:
            batch = batch_info(self._lake.checkpoint, number)
            snapshot = self._snapshots.take() if self._snapshots else None
            work = LakeBatchWriter(self._lake, self._spark, self._options.timeouts, batch, snapshot)
            self.version = work.run(rows)
            if self._snapshots and snapshot is not None and not work.is_repetition:
                self._snapshots.committed(snapshot)
            self._commit_journals(batch.end)
        except BaseException as error:
            # Spark passes on only the text of an exception.
            self._failure = error
            raise

    def _snapshot_when_idle(self, *, at_end: bool) -> None:
        """Commit a snapshot of the depths if no batch has done so lately, and at the end."""
        if self._snapshots is None or self.busy or self._failure is not None:
            return
        if at_end or (not self._options.once and self._snapshots.is_due(self._options.every_s)):
            try:
                self.version = self._snapshots.commit_alone() or self.version
            except (OSError, TamboError) as error:
                # The batches are committed, and the next one takes a snapshot. If the lake itself
                # is damaged, the next batch says so.
                log.warning("the depths of the queues could not be written: %s", error)

    def _stream_offsets(self) -> dict[str, Any]:
        """Return the offset of each stream: from the lake's log, or ``0-0`` for new ones.

        Committing ``0-0`` registers the lake as a reader, so that journals keep their entries.
        """
        store = Store(self._options.url)
        try:
            names = [*filter(self._wanted.includes, FollowedStreams(self._wanted).names(store))]
        finally:
            store.close()
        return {**dict.fromkeys(names, "0-0"), **self.version.offset}

    def _commit_journals(self, end: dict[str, Any]) -> None:
        """Commit *end* to the journals that are selected, so that they can be trimmed.

        *end* also has streams that were selected in earlier runs. In their journals the lake stays
        registered at its last offset, until an operator makes the journal forget this reader. A
        commit would register it again, so these streams are left out.
        """
        reader, offsets = f"lake-{self._lake.id}", tail_offsets.decode(end)
        streams = ((Stream.parse(name), offset) for name, offset in offsets.items())
        calls = [
            ops.commit(JournalKeys(stream.protocol, stream.queue), reader, text(offset.id))
            for stream, offset in streams
            if stream.source == JOURNAL and self._wanted.includes(str(stream))
        ]
        store = Store(self._options.url)
        try:
            store.follow(ops.commit_and_trim(calls))
        except StoreError as error:
            # The batch is in the lake, and the next one commits again.
            log.warning("journals could not be committed, and are not trimmed yet: %s", error)
        finally:
            store.close()


def _remove_empty_offsets(offsets: Path) -> None:
    """Remove an offset log without offsets, left by a first batch that failed: Spark refuses it."""
    if offsets.is_dir() and not any(each.name.isdecimal() for each in offsets.iterdir()):
        shutil.rmtree(offsets)


def _has_stopped(query: StreamingQuery) -> bool:
    """Wait for a moment; return whether the query has stopped by then."""
    try:
        return bool(query.awaitTermination(POLL_EVERY_S))
    except PySparkException:
        return True
