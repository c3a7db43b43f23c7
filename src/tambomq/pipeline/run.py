"""The standing pipeline: one query over all that is followed, batch after batch into the lake."""

from __future__ import annotations

import json
import logging
import re
import shutil
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
from tambomq.journal.keys import Keys
from tambomq.pipeline import depths, sources
from tambomq.pipeline.batch import Absorbing, Rules, span
from tambomq.pipeline.lake import Lake, is_full
from tambomq.pipeline.progress import Progress
from tambomq.pipeline.snapshots import Snapshots
from tambomq.pipeline.sources import JOURNAL, Followed, PipelineSource, Stream
from tambomq.spark import tail_offsets
from tambomq.spark.stream_cuts import text
from tambomq.store.sync import Store

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 400_000
"""More of them save little; they have to be sorted in memory."""
LOOK_EVERY_S: Final = 1
SETTINGS: Final = {
    # Else Spark starts a job to look at as many files as a lake soon has.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Others read them too, and the older form of a time is known to few.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
}
RULES: Final = Rules(watermark_ms=60_000, give_up_ms=7 * 86_400_000)
_OURS: Final = re.compile(r"tambomq\.errors\.(\w+): ([^\n]+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to follow, and how."""

    url: str
    queues: Sequence[str] = ()
    """Patterns like ``chasqui:*``; all, if there are none."""
    once: bool = False
    """What is there now, and no more."""
    every_s: float = 10.0
    batch_rows: int = BATCH_ROWS
    rules: Rules = RULES
    fail_on_loss: bool = True
    snapshots: bool = True
    """Whether to count with each batch what is in the queues themselves."""


def streams(plan: Plan) -> int:
    """Return how many streams there are to follow now; raise `StoreUnavailable` without a server.

    Raises `SettingsError` if a queue of *plan* makes no sense.
    """
    wanted = sources.chosen(plan.queues)
    store = Store(plan.url)
    try:
        return len(set(filter(wanted.includes, Followed(wanted).names(store))))
    finally:
        store.close()


def unfollowed(plan: Plan) -> list[str]:
    """Return the queues of *plan* that can only be counted now, as ``protocol:queue``."""
    store = Store(plan.url)
    try:
        found = depths.taken(store, sources.chosen(plan.queues))
    finally:
        store.close()
    return sorted(f"{each.protocol}:{each.queue}" for each in found if not each.followed)


class Pipeline:
    """A pipeline that fills *lake* as *plan* says, once it is started."""

    def __init__(self, spark: SparkSession, lake: Lake, plan: Plan) -> None:
        self._spark, self._lake, self._plan = spark, lake, plan
        self._wanted = sources.chosen(plan.queues)
        self._snapshots = Snapshots(lake, plan.url, self._wanted) if plan.snapshots else None
        self._failure: BaseException | None = None
        self.busy = False
        """Whether a batch is being written."""
        self.version = lake.log.version()

    def start(self) -> StreamingQuery:
        """Return the query, which runs by itself."""
        cores = max(2, self._spark.sparkContext.defaultParallelism)
        for name, value in SETTINGS.items():
            self._spark.conf.set(name, value)
        self._spark.conf.set("spark.sql.shuffle.partitions", str(cores))
        self._spark.dataSource.register(PipelineSource)
        self._let_go(self._journals())
        if not self.version.batches:
            _forget_beginning(self._lake.checkpoint / "offsets")
        plan = self._plan
        options = {
            "url": plan.url,
            "queue": json.dumps(self._wanted.patterns),
            "maxRowsPerBatch": str(plan.batch_rows),
            "failOnDataLoss": str(plan.fail_on_loss).lower(),
            "partitions": str(cores),
        }
        rows = self._spark.readStream.format(sources.NAME).options(**options).load()
        writer = rows.writeStream.queryName("pipeline").foreachBatch(self._absorb)
        writer = writer.option("checkpointLocation", str(self._lake.checkpoint))
        if plan.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(plan.every_s * 1000)} milliseconds").start()

    def follow(self, is_to_end: Callable[[], bool]) -> Iterator[Progress]:
        """Run, and yield what each batch was; end after a batch once *is_to_end*.

        Raises what ended it too early, in one line.
        """
        try:
            query, told = self.start(), -1
        except (PySparkException, Py4JError) as error:
            raise self._in_one_line(error) from error
        try:
            over = False
            while not over:
                over = _is_over(query) or (is_to_end() and not self.busy)
                for progress in map(Progress.told, query.recentProgress):
                    if progress.batch > told and progress.rows:
                        told = progress.batch
                        yield progress
                self._count_idle(over=over)
            # A batch that begins just now and is stopped is no failure.
            failure = self._failure or query.exception()
        finally:
            if query.isActive:
                query.stop()
        if failure is not None:
            raise self._in_one_line(failure) from failure

    def _in_one_line(self, failure: BaseException) -> TamboError:
        if isinstance(failure, TamboError):
            return failure
        if is_full(failure):
            return LakeError(
                f"the disk of {self._lake.path} is full; the batch was not taken: "
                "make room and start again"
            )
        if ours := _OURS.search(str(failure)):
            kind = getattr(errors, ours[1], None)
            return (SettingsError if kind is SettingsError else LakeError)(ours[2].strip())
        lines = str(failure).strip().splitlines()
        return LakeError(lines[0] if lines else type(failure).__name__)

    def _absorb(self, rows: DataFrame, number: int) -> None:
        self.busy = True
        try:
            batch = span(self._lake.checkpoint, number)
            counted = self._snapshots.take() if self._snapshots else None
            work = Absorbing(self._lake, self._spark, self._plan.rules, batch, counted)
            self.version = work.run(rows)
            if self._snapshots and counted is not None:
                self._snapshots.keep(counted)
            self._let_go(batch.end)
        except BaseException as error:
            # Spark would only pass on how it is written.
            self._failure = error
            raise
        finally:
            self.busy = False

    def _count_idle(self, *, over: bool) -> None:
        """Count what is in the queues where no batch does: nobody may tell what waits there."""
        if self._snapshots is None or self.busy or self._failure is not None:
            return
        if over or (not self._plan.once and self._snapshots.is_due(self._plan.every_s)):
            try:
                self.version = self._snapshots.enter() or self.version
            except OSError as error:
                # The batches are in the lake, and the next one counts again.
                log.warning("how much is in the queues is not noted: %s", error)

    def _journals(self) -> dict[str, Any]:
        """Return how far each stream was read, those that are new included.

        Journals that are told so know the lake as a reader, and keep for it what it needs.
        """
        store = Store(self._plan.url)
        try:
            names = [*filter(self._wanted.includes, Followed(self._wanted).names(store))]
        finally:
            store.close()
        return {**dict.fromkeys(names, "0-0"), **self.version.offset}

    def _let_go(self, end: dict[str, Any]) -> None:
        """Tell the journals how far they have been read, so that they may be trimmed."""
        reader, marks = f"lake-{self._lake.id}", tail_offsets.read(end)
        streams = ((Stream.named(name), mark) for name, mark in marks.items())
        calls = [
            ops.commit(Keys(stream.protocol, stream.queue), reader, text(mark.id))
            for stream, mark in streams
            if stream.source == JOURNAL
        ]
        store = Store(self._plan.url)
        try:
            store.run_all(calls)
        except StoreError as error:
            # The batch is in the lake. The next one tells them all again.
            log.warning("journals are not told how far they were read: %s", error)
        finally:
            store.close()


def _forget_beginning(offsets: Path) -> None:
    """Remove what is left of a first batch that could not be noted: Spark would not begin."""
    if offsets.is_dir() and not any(each.name.isdecimal() for each in offsets.iterdir()):
        shutil.rmtree(offsets)


def _is_over(query: StreamingQuery) -> bool:
    try:
        return bool(query.awaitTermination(LOOK_EVERY_S))
    except PySparkException:
        return True
