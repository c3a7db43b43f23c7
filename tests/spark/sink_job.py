"""Jobs that die, or fail, while they write: a process for `test_sink_crash`.

sink_job.py <url> <folder> write | commit | none
    stream the files in <folder>/in to the queue ``q``; the first time, the JVM is killed while
    rows are being written, or before the batch is committed
sink_job.py <url> <folder> retry
    write 10,000 rows at once; each task fails the first time, half-way
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.functions import udf
from pyspark.sql.types import StructType

from tambomq.spark import rsmq_sink, session
from tambomq.spark.sink import BatchWriter, Sink, StreamWriter

BATCH = 1
"""The batch that is disturbed: neither the first nor the last."""


def first_time(folder: str, what: str) -> bool:
    """Whether nobody has asked this before."""
    try:
        os.close(os.open(Path(folder) / what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class DyingWriter(StreamWriter):
    """Kills the JVM *pid* once, at *point*."""

    def __init__(self, sink: Sink, folder: str, point: str, pid: int) -> None:
        super().__init__(sink)
        self._folder, self._point, self._pid = folder, point, pid

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return super().write(self._disturbed(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        if self._point == "commit" and batchId == BATCH:
            self._die()
        super().commit(messages, batchId)

    def _disturbed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = int(self._task().getLocalProperty("streaming.sql.batchId"))
        for place, batch in enumerate(batches):
            yield batch
            if self._point == "write" and number == BATCH and place:
                self._die()

    def _die(self) -> None:
        if first_time(self._folder, "killed"):
            os.kill(self._pid, signal.SIGKILL)


class Dying(DataSource):
    """The format ``rsmq`` for writes, with a writer that kills."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802  (Spark's)
        options = dict(self.options)
        folder, point, pid = (options.pop(name) for name in ("folder", "point", "pid"))
        return DyingWriter(sink(options, schema, overwrite), folder, point, int(pid))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(sink(self.options, schema, overwrite))


def sink(options: Mapping[str, str], schema: StructType, overwrite: bool) -> Sink:
    return rsmq_sink.sink(options, schema, overwrite=overwrite)


def stream(spark: SparkSession, url: str, folder: str, point: str) -> None:
    """Write what the files hold, two of them in each batch."""
    java: Any = spark.sparkContext._jvm
    pid = java.java.lang.ProcessHandle.current().pid()
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 2)
    writing = rows.text(f"{folder}/in").writeStream.format("dying")
    writing = writing.options(url=url, queue="q", folder=folder, point=point, pid=pid)
    writing = writing.option("checkpointLocation", f"{folder}/checkpoint")
    writing.trigger(availableNow=True).start().awaitTermination()


def retry(spark: SparkSession, url: str, folder: str) -> None:
    """Write rows whose maker fails once in each of two tasks, after 3500 of them."""

    def failing(number: int) -> str:
        if number % 5000 == 3500 and first_time(folder, f"failed-{number}"):
            raise OSError("for the first time")
        return str(number)

    rows = spark.range(10_000, numPartitions=2)
    made = rows.select(udf(failing, useArrow=False)("id").alias("body"))
    made.write.format("dying").options(url=url, queue="q").mode("append").save()


def main(url: str, folder: str, point: str) -> None:
    conf = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": 1000,
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    spark = session("sink-job", master="local[2,3]", conf=conf)
    spark.dataSource.register(Dying)
    if point == "retry":
        retry(spark, url, folder)
    else:
        stream(spark, url, folder, point)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
