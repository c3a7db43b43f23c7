"""One batch of the pipeline, into all tables of the lake at once."""

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
from tambomq.pipeline import folders, gold, lives, silver
from tambomq.pipeline.depths import Counted
from tambomq.pipeline.lake import BRONZE, CLOSED, DEPTHS, LATE, MINUTES, OPEN, Lake
from tambomq.pipeline.sources import Stream
from tambomq.pipeline.table_log import Entry, File, Version, by_table
from tambomq.spark import tail_offsets

log = logging.getLogger(__name__)

WATERMARK, LATE_ROWS = "watermark_ms", "late_rows"
"""Facts of the log: up to when lives were closed, and how much came later than that."""
_CHECKPOINT: Final = "v1"
_NO_DATE: Final = "1970-01-01"


@dataclass(frozen=True, slots=True)
class Rules:
    """When a life is closed."""

    watermark_ms: int
    """So long after it has ended."""
    give_up_ms: int
    """So long after anything was heard of it."""


@dataclass(frozen=True, slots=True)
class Span:
    """A batch: whose, which, and where it ends."""

    query: str
    number: int
    end: dict[str, Any]
    """As `tail_offsets` has it."""


def span(checkpoint: Path, number: int) -> Span:
    """Return what Spark noted of batch *number* before it began."""
    try:
        query = json.loads((checkpoint / "metadata").read_text("utf-8"))["id"]
        version, _, end = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
        offset = json.loads(end)
    except (OSError, ValueError, KeyError) as error:
        raise LakeError(f"the checkpoint {checkpoint} cannot be read: {error}") from error
    if version != _CHECKPOINT:
        raise LakeError(f"the checkpoint {checkpoint} is of version {version}, not {_CHECKPOINT}")
    return Span(query, number, offset)


def reached_ms(end: Mapping[str, Any]) -> int:
    """Return up to when all that was recorded has been read, by the clock of Redis.

    A stream that was read to its end has nothing more from before the latest entry of all.
    """
    marks = tail_offsets.read(end).values()
    behind = [mark.id >> 64 for mark in marks if mark.added is None]
    return min(behind) if behind else max((mark.id >> 64 for mark in marks), default=0)


class Absorbing:
    """Puts one batch into the lake: all of it or, whatever happens, nothing."""

    def __init__(
        self,
        lake: Lake,
        spark: SparkSession,
        rules: Rules,
        span: Span,
        counted: Counted | None = None,
    ) -> None:
        """*counted* is what was in the queues when it began."""
        self._lake, self._spark, self._span, self._counted = lake, spark, span, counted
        self._before = lake.log.version()
        self._made: list[File] = []
        # A stream may have an id of somebody's own making, from a time that is to come.
        reached = min(reached_ms(span.end), now_ms())
        # What was closed stays closed, whatever is followed next.
        self._watermark = max(reached - rules.watermark_ms, self._before.facts.get(WATERMARK, 0))
        self._forgotten = reached - rules.give_up_ms

    def run(self, rows: DataFrame) -> Version:
        """Absorb *rows*; return the version of the lake that has them. Twice is once."""
        done = self._before.batches
        if done.get(self._span.query, -1) >= self._span.number:
            return self._before
        if done and self._span.query not in done:
            raise LakeError(
                f"the lake {self._lake.path} was filled with another checkpoint than the one in "
                f"{self._lake.checkpoint}: put that back, or choose another --lake"
            )
        with self._lake.writing():
            try:
                with self._lake.staged() as home:
                    add, late = self._write(rows, home)
                return self._lake.log.commit(self._entry(add, late))
            except BaseException:
                self._lake.discard(self._made)
                raise

    def _entry(self, add: dict[str, list[File]], late: int) -> Entry:
        return Entry(
            at_ms=now_ms(),
            by=self._span.query,
            batch=self._span.number,
            add={table: files for table, files in add.items() if files},
            remove=by_table({OPEN: self._before.of(OPEN)}),
            offset=self._span.end,
            facts={
                WATERMARK: self._watermark,
                LATE_ROWS: self._before.facts.get(LATE_ROWS, 0) + late,
            },
        )

    def _write(self, rows: DataFrame, home: Path) -> tuple[dict[str, list[File]], int]:
        """Write all files; return them by table, and how many rows came too late."""
        dated = rows.withColumn("date", F.to_date("recorded_at"))
        self._by_queue(dated, home / BRONZE)
        bronze = self._adopted(BRONZE, home / BRONZE)
        fresh = self._lake.rows(self._spark, BRONZE, bronze)
        late = self._fold(fresh, home)
        folded = home / "lives"
        closed = self._adopted(CLOSED, folded / "part=closed")
        states = self._lake.rows(self._spark, CLOSED, closed)
        parts = gold.of_lives(states, closed=True).unionByName(gold.of_runs(fresh))
        gold.summed(parts).write.partitionBy("date").parquet(str(home / MINUTES))
        if self._counted is not None:
            self._counted.write(home / DEPTHS)
        add = {
            BRONZE: bronze,
            OPEN: self._adopted(OPEN, folded / "part=open" / f"date={_NO_DATE}"),
            CLOSED: closed,
            LATE: late,
            MINUTES: self._adopted(MINUTES, home / MINUTES),
            DEPTHS: self._adopted(DEPTHS, home / DEPTHS),
        }
        return add, sum(file.rows for file in late)

    def _by_queue(self, rows: DataFrame, to: Path) -> None:
        queues = (Stream.named(name).queue for name in self._span.end)
        found = folders.stored(rows, queues)
        found.write.partitionBy("protocol", "queue", "date").parquet(str(to))

    def _adopted(self, table: str, written: Path) -> list[File]:
        found = self._lake.adopt(table, written)
        self._made += found
        return found

    # ── lives ────────────────────────────────────────────────────────────────

    def _fold(self, fresh: DataFrame, home: Path) -> list[File]:
        """Write lives as they are after *fresh* rows; return files of those that came too late."""
        to = home / "lives"
        parts = lives.parts(self._rows(OPEN), fresh)
        self._write_lives(lives.folded(parts), to)
        found = self._spark.read.schema(lives.FOLDED).parquet(str(to))
        is_stranger = self._is_stranger()
        if found.where(lives.came_back() | is_stranger).isEmpty():
            return []
        asked = home / "doubts"
        lives.doubts(found, self._rows(CLOSED), is_stranger).write.parquet(str(asked))
        doubted = self._spark.read.schema(lives.DOUBTS).parquet(str(asked))
        if doubted.isEmpty():
            return []
        self._write_lives(lives.folded(lives.told_apart(parts, doubted)), to)
        late = lives.late(fresh, doubted)
        self._by_queue(late, home / LATE)
        if found_late := self._adopted(LATE, home / LATE):
            log.warning("some jobs were told of after they were closed: see the table late")
        return found_late

    def _is_stranger(self) -> Column:
        """Whether a life may have been closed before, as far as can be said without looking."""
        if not self._before.of(CLOSED):
            return F.expr("false")
        since = F.lit(self._before.facts.get(WATERMARK, 0))
        return ~F.col("known") & ~silver.is_new_since(since)

    def _rows(self, table: str) -> DataFrame:
        return self._lake.rows(self._spark, table, self._before.of(table))

    def _write_lives(self, found: DataFrame, to: Path) -> None:
        ended = silver.finished_ms().isNotNull() & (F.col("seen_ms") < self._watermark)
        is_over = ended | (F.col("seen_ms") < self._forgotten) | F.col("newer")
        died = F.to_date(F.timestamp_millis(silver.died_ms()))
        found.select(
            "*",
            F.when(is_over, "closed").otherwise("open").alias("part"),
            F.when(is_over, died).otherwise(F.lit(_NO_DATE).cast("date")).alias("date"),
        ).write.mode("overwrite").partitionBy("part", "date").parquet(str(to))
