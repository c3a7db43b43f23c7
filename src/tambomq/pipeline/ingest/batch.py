"""Writes one batch of the pipeline into all tables of the lake, in one commit of the lake's log.

1. The rows are written to bronze, in a staging directory, and moved into the lake (`_adopt`).
2. They are folded into the open lifecycles of earlier batches. Some of these are now *closed*
   (see below): no later batch changes them.
3. Rows about jobs whose lifecycle was closed in an earlier batch go to the table ``late``.
4. Lifecycles that were closed now, and failed runs, are summed up per minute for gold.
5. One log entry adds all these files and removes the previous open lifecycles. The log records the
   query, the batch number and the offset at its end, so a batch that Spark repeats after a crash
   is skipped. A batch with that number or a lower one, but another end, is refused: it comes from
   an old copy of the checkpoint, and has rows that would be lost if it were skipped.

A lifecycle has *ended* when its last event is a terminal one, such as ``completed``. It is closed
- if it has ended, and nothing about it was recorded since the *watermark*: the time up to which
  all streams have been read, less `LifecycleTimeouts.watermark_delay_ms`;
- or if nothing about it was recorded for `LifecycleTimeouts.give_up_ms`, ended or not;
- or if it is superseded: the same job has a later one.

Files count only once the log names them. If the process dies before step 5, Spark repeats the
batch and writes other files; if it dies after, the repetition is skipped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.clock import now_ms
from tambomq.errors import LakeError
from tambomq.pipeline.ingest import gold, lifecycles, silver
from tambomq.pipeline.ingest.depths import DepthSnapshot
from tambomq.pipeline.ingest.sources import Stream
from tambomq.pipeline.lake import folders
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, DEPTHS, LATE, MINUTES, OPEN, Lake
from tambomq.pipeline.lake.log import LakeFile, LakeVersion, LogEntry, by_table
from tambomq.spark.tail import offsets as tail_offsets

log = logging.getLogger(__name__)

WATERMARK, LATE_ROWS = "watermark_ms", "late_rows"
"""Facts in the log: the watermark, a time; and the number of late rows in all batches so far."""
_CHECKPOINT: Final = "v1"
_NO_DATE: Final = "1970-01-01"
"""The date of all open lifecycles, which are kept in one folder."""


@dataclass(frozen=True, slots=True)
class LifecycleTimeouts:
    """When a lifecycle is closed."""

    watermark_delay_ms: int
    """For one that has ended: how long after its last event. Meanwhile events of other streams can
    still arrive."""
    give_up_ms: int
    """For any, ended or not: how long after its last event. An upper limit."""


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch of a streaming query, as recorded in its checkpoint."""

    query: str
    number: int
    end: dict[str, Any]
    """The end offset of each stream, by its name, as `tail_offsets` writes it."""


def batch_info(checkpoint: Path, number: int) -> BatchInfo:
    """Return what Spark logged about batch *number* before it started; raise `LakeError`."""
    try:
        query = json.loads((checkpoint / "metadata").read_text("utf-8"))["id"]
        version, _, end = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
        offset = json.loads(end)
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(f"the checkpoint {checkpoint} cannot be read: {error}") from error
    if version != _CHECKPOINT:
        raise LakeError(f"the checkpoint {checkpoint} is of version {version}, not {_CHECKPOINT}")
    return BatchInfo(query, number, offset)


def reached_ms(end: Mapping[str, Any]) -> int:
    """Return the time up to which all streams have been read, by the clock of Redis.

    Only streams with unread entries hold it back. If there are none, it is the newest entry of all.
    """
    offsets = tail_offsets.decode(end).values()
    # The upper 64 bits of an entry id are milliseconds. An offset has `added` only if the stream
    # was read to its end.
    behind = [each.id >> 64 for each in offsets if each.added is None]
    return min(behind) if behind else max((each.id >> 64 for each in offsets), default=0)


class LakeBatchWriter:
    """Writes one batch into the lake: all of it or, if anything fails, nothing."""

    def __init__(
        self,
        lake: Lake,
        spark: SparkSession,
        timeouts: LifecycleTimeouts,
        batch: BatchInfo,
        snapshot: DepthSnapshot | None = None,
    ) -> None:
        """*snapshot* has the depths of the queues at the start of the batch."""
        # Others may commit until this batch does, but only snapshots and compactions: no one else
        # changes the open lifecycles or the facts, and files that it reads are kept for an hour.
        self._lake, self._spark, self._batch, self._snapshot = lake, spark, batch, snapshot
        self._before = lake.log.version()
        self._adopted_files: list[LakeFile] = []
        # An entry added with an explicit id may lie in the future.
        reached = min(reached_ms(batch.end), now_ms())
        # The watermark never moves back, even if other queues are followed from now on.
        before_ms = self._before.facts.get(WATERMARK, 0)
        self._watermark_ms = max(reached - timeouts.watermark_delay_ms, before_ms)
        self._give_up_before_ms = reached - timeouts.give_up_ms

    @property
    def is_repetition(self) -> bool:
        """Whether the lake has this batch already: Spark repeats one whose commit it did not log.

        It has the same end then, since Spark logs the end before it starts a batch.
        """
        is_last = self._before.batches.get(self._batch.query) == self._batch.number
        # The log keeps the last offset that was not empty; a batch with an empty end has no rows.
        return is_last and (not self._batch.end or self._batch.end == self._before.offset)

    def run(self, rows: DataFrame) -> LakeVersion:
        """Write *rows*; return the version of the lake that has them. A repetition does nothing.

        Raises `LakeError` if the lake was filled with another checkpoint, or a later state of it.
        """
        if self.is_repetition:
            return self._before
        self._check_checkpoint()
        with self._lake.writing():
            try:
                with self._lake.staged() as staging:
                    add, late_rows = self._write(rows, staging)
                return self._lake.log.commit(self._entry(add, late_rows))
            except BaseException:
                # Also after a commit that was interrupted: `discard` asks the log what it has.
                self._lake.discard(self._adopted_files)
                raise

    def _check_checkpoint(self) -> None:
        done, number = self._before.batches, self._batch.number
        if done and self._batch.query not in done:
            raise LakeError(
                f"the lake {self._lake.path} was filled with another checkpoint than the one in "
                f"{self._lake.checkpoint}: restore that one, or choose another --lake"
            )
        if (last := done.get(self._batch.query, -1)) >= number:
            raise LakeError(
                f"the checkpoint {self._lake.checkpoint} is older than its lake: it is at batch "
                f"{number}, and the lake has batch {last}. Restore the latest checkpoint, or lake "
                "and checkpoint from one copy, or choose another --lake"
            )

    def _entry(self, add: dict[str, list[LakeFile]], late_rows: int) -> LogEntry:
        return LogEntry(
            at_ms=now_ms(),
            by=self._batch.query,
            batch=self._batch.number,
            add={table: files for table, files in add.items() if files},
            remove=by_table({OPEN: self._before.of(OPEN)}),
            offset=self._batch.end,
            facts={
                WATERMARK: self._watermark_ms,
                LATE_ROWS: self._before.facts.get(LATE_ROWS, 0) + late_rows,
            },
        )

    def _write(self, rows: DataFrame, staging: Path) -> tuple[dict[str, list[LakeFile]], int]:
        """Write all files; return them by table, and the number of late rows."""
        dated = rows.withColumn("date", F.to_date("recorded_at"))
        self._write_by_queue(dated, staging / BRONZE)
        bronze = self._adopt(BRONZE, staging / BRONZE)
        fresh = self._lake.rows(self._spark, BRONZE, bronze)
        late = self._write_folded(fresh, staging)
        folded = staging / "lifecycles"
        closed = self._adopt(CLOSED, folded / "status=closed")
        states = self._lake.rows(self._spark, CLOSED, closed)
        amounts = gold.of_lifecycles(states, closed=True).unionByName(gold.of_runs(fresh))
        gold.summed(amounts).write.partitionBy("date").parquet(str(staging / MINUTES))
        if self._snapshot is not None:
            self._snapshot.write(staging / DEPTHS)
        add = {
            BRONZE: bronze,
            OPEN: self._adopt(OPEN, folded / "status=open" / f"date={_NO_DATE}"),
            CLOSED: closed,
            LATE: late,
            MINUTES: self._adopt(MINUTES, staging / MINUTES),
            DEPTHS: self._adopt(DEPTHS, staging / DEPTHS),
        }
        return add, sum(file.rows for file in late)

    def _write_by_queue(self, rows: DataFrame, to: Path) -> None:
        queues = (Stream.parse(name).queue for name in self._batch.end)
        found = folders.stored(rows, queues)
        found.write.partitionBy("protocol", "queue", "date").parquet(str(to))

    def _adopt(self, table: str, written: Path) -> list[LakeFile]:
        found = self._lake.adopt(table, written)
        self._adopted_files += found
        return found

    # ── lifecycles ────────────────────────────────────────────────────────────────

    def _write_folded(self, fresh: DataFrame, staging: Path) -> list[LakeFile]:
        """Write lifecycles as they are after *fresh* rows; return the files of late rows.

        They are first written as if every job had one lifecycle. If that may be wrong for some
        jobs, these are compared with their closed lifecycles, and all are written once more.
        """
        to = staging / "lifecycles"
        states = lifecycles.states_to_fold(self._table_rows(OPEN), fresh)
        self._write_lifecycles(lifecycles.folded(states), to)
        found = self._spark.read.schema(lifecycles.FOLDED).parquet(str(to))
        maybe_closed_before = self._maybe_closed_before()
        if found.where(lifecycles.reentered() | maybe_closed_before).isEmpty():
            return []
        jobs = lifecycles.ambiguous_jobs(found, self._table_rows(CLOSED), maybe_closed_before)
        # Written and read back: otherwise Spark computes it again for each of its three uses.
        path = str(staging / "ambiguous")
        jobs.write.parquet(path)
        ambiguous = self._spark.read.schema(lifecycles.AMBIGUOUS).parquet(path)
        if ambiguous.isEmpty():
            return []
        split = lifecycles.split_lifecycles(states, ambiguous)
        self._write_lifecycles(lifecycles.folded(split), to)
        self._write_by_queue(lifecycles.late_rows(fresh, ambiguous), staging / LATE)
        if found_late := self._adopt(LATE, staging / LATE):
            log.warning("events of closed lifecycles have arrived: they are in the table late")
        return found_late

    def _maybe_closed_before(self) -> Column:
        """Whether a job may have a closed lifecycle; false if its rows alone rule that out."""
        if not self._before.of(CLOSED):
            return F.expr("false")
        since = F.lit(self._before.facts.get(WATERMARK, 0))
        return ~F.col("was_open") & ~silver.is_new_since(since)

    def _table_rows(self, table: str) -> DataFrame:
        return self._lake.rows(self._spark, table, self._before.of(table))

    def _write_lifecycles(self, found: DataFrame, to: Path) -> None:
        """Write *found* in two folders, ``status=open`` and ``status=closed``."""
        has_ended, seen_ms = silver.ended_ms().isNotNull(), F.col("seen_ms")
        is_closed = (
            (has_ended & (seen_ms < self._watermark_ms))
            | (seen_ms < self._give_up_before_ms)
            | F.col("superseded")
        )
        ended_on = F.to_date(F.timestamp_millis(silver.ended_or_seen_ms()))
        found.select(
            "*",
            F.when(is_closed, "closed").otherwise("open").alias("status"),
            F.when(is_closed, ended_on).otherwise(F.lit(_NO_DATE).cast("date")).alias("date"),
        ).write.mode("overwrite").partitionBy("status", "date").parquet(str(to))
