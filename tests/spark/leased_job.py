"""A leased stream that dies once: a process for `test_leased_crash`.

leased_job.py <url> <folder> <point>
    stream the queue ``q`` to parquet files in <folder>/out until it is empty; the first time, the
    JVM is killed at <point>, one of `POINTS`, in its second batch. Where the point is in the
    driver's own Python, that is killed too: then nobody gives up the lease.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tambomq.spark import session
from tambomq.spark.leased import LeasedReader
from tambomq.spark.options import Given
from tambomq.spark.rsmq import NAME, OPTIONS, RsmqSource
from tambomq.store.ledger import Claim

POINTS = ("after claim", "in read", "in sink write", "in sink commit", "before ack", "between")
ROWS = 500
SECOND = 2
_MINE = ("folder", "point", "pid")


class Reaper:
    """Kills the JVM *pid* once, at *point*. Plain values: it is sent to workers."""

    def __init__(self, folder: str, point: str, pid: int) -> None:
        self.folder, self.point, self.pid = folder, point, pid

    def at(self, point: str, *, and_us: bool = False) -> None:
        if point != self.point or not self._first():
            return
        os.kill(self.pid, signal.SIGKILL)
        if and_us:
            os.kill(os.getpid(), signal.SIGKILL)

    def _first(self) -> bool:
        try:
            os.close(os.open(Path(self.folder) / "killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class DyingReader(LeasedReader):
    """Dies while it plans or reads its second batch."""

    reaper: Reaper

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802  (Spark's)
        if start["claim"] == SECOND:
            self.reaper.at("before ack", and_us=True)
        end = super().latestOffset(start, limit)
        if end["claim"] == SECOND:
            self.reaper.at("after claim", and_us=True)
        return end

    def _claimed(self, lease: Any, number: int, most: int) -> Claim:
        if number == SECOND:
            self.reaper.at("between", and_us=True)
        return super()._claimed(lease, number, most)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Any = partition
        for batch in super().read(partition):
            yield batch
            if part.claim == SECOND:
                self.reaper.at("in read")


class Dying(RsmqSource):
    """The format ``rsmq`` with a reader that dies."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  (Spark's)
        given = self._given()
        reader = DyingReader.given(given, self._leased(given), self._payload(given).apply)
        folder, point, pid = (self.options[name] for name in _MINE)
        reader.reaper = Reaper(folder, point, int(pid))
        return reader

    def _given(self) -> Given:
        options = {name: value for name, value in self.options.items() if name not in _MINE}
        return Given(NAME, options, OPTIONS)


def disturbed(rows: DataFrame, reaper: Reaper) -> DataFrame:
    """Let the files of the second batch be cut off."""
    seen = count()

    def passed(claim: int) -> int:
        if claim == SECOND and next(seen) == ROWS // 3:
            reaper.at("in sink write")
        return claim

    # Without Arrow, which would want pandas.
    looked_at = functions.udf(passed, "bigint", useArrow=False)
    return rows.withColumn("claim", looked_at("claim"))


def watch(reaper: Reaper, folder: Path) -> None:
    """Kill when the sink has committed the second batch, and Spark has not yet."""
    while not (folder / "out" / "_spark_metadata" / "1").exists():
        time.sleep(0.0005)
    reaper.at("in sink commit")


def main(url: str, folder: str, point: str) -> None:
    spark: SparkSession = session("leased", master="local[2]")
    gateway: Any = spark.sparkContext._gateway
    reaper = Reaper(folder, point, gateway.proc.pid)
    if point == "in sink commit":
        threading.Thread(target=watch, args=(reaper, Path(folder)), daemon=True).start()
    spark.dataSource.register(Dying)
    options: dict[str, Any] = {
        "url": url,
        "queue": "q",
        "lease": "job",
        "leaseSeconds": 5,
        "partitions": 2,
    }
    options |= {"maxRowsPerBatch": ROWS, "folder": folder, "point": point, "pid": reaper.pid}
    rows = spark.readStream.format("dying").options(**options).load()
    writer = disturbed(rows, reaper).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.start(f"{folder}/out").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
