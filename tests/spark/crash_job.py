"""Streams that die: a process for `test_crash_points` and its like.

Its arguments, in JSON, are url, master, conf and cases, each with kind, sink, folder, options
and doom.

A case is a query: *kind* names a format that is streamed with *options*; *sink* is ``files``,
for Parquet files in <folder>/out, or the queue that the rows go to, of the same format. All run at
once until nothing is left. What a query came to is in <folder>/ended: nothing, or its error.

A batch comes by these points: between, after claim, before read, in read, before write, in sink
write, in sink commit, before ack. Our sinks have one more, between chunks.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tambomq.bulk.lease_model import Claim
from tambomq.spark import session
from tambomq.spark.formats.chasqui.source import ChasquiSource
from tambomq.spark.formats.gomq.source import GomqSource
from tambomq.spark.formats.rsmq.source import RsmqSource
from tambomq.spark.formats.tambo.source import TamboSource
from tambomq.spark.lease.holder import LeaseHolder
from tambomq.spark.lease.reader import LeasedReader
from tambomq.spark.sink.writer import StreamWriter
from tambomq.spark.tail.reader import TailReader
from tests.spark.dying import CrashPlan

SINKS = {"rsmq": ("body",), "chasqui": ("payload", "name"), "gomq": ("payload",)}
"""The columns that are written."""
_BEGUN = "begun"
_TIMES = 20


class CrashingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Comes by the points of a batch that are in a reader."""

    doom: CrashPlan

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        Path(self.doom.folder, _BEGUN).touch()
        super().prepareForTriggerAvailableNow()  # type: ignore[safe-super]  # the format's

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802  (Spark's name)
        planned = self.doom.planned()
        self.doom.at("before ack", planned - 1, and_us=True)
        end = super().latestOffset(start, limit)
        if end != start:
            self.doom.at("after claim", planned, and_us=True)
        return end

    def read(self, partition: InputPartition) -> Iterator[Any]:
        number = self.doom.planned() - 1
        self.doom.at("before read", number)
        for rows in cast("Iterator[pa.RecordBatch]", super().read(partition)):
            yield rows
            self.doom.at("in read", number)


class CrashingLeasedReader(CrashingReader, LeasedReader):
    """A queue."""

    def _claim(self, holder: LeaseHolder, number: int, max_rows: int) -> Claim:
        self.doom.at("between", self.doom.planned(), and_us=True)
        return super()._claim(holder, number, max_rows)


class CrashingTailReader(CrashingReader, TailReader):
    """A stream of which nothing is consumed."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802  (Spark's name)
        self.doom.at("between", self.doom.planned(), and_us=True)
        return super().latestOffset(start, limit)


class CrashingWriter(StreamWriter):
    """Comes by the points of a batch that are in our sinks."""

    doom: CrashPlan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        number = int(self._task().getLocalProperty("streaming.sql.batchId"))
        self.doom.at("before write", number)
        written = super().write(self._passing(iterator, number))
        self.doom.at("in sink write", number)
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        self.doom.at("in sink commit", batchId)
        super().commit(messages, batchId)

    def _passing(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        for place, batch in enumerate(batches):
            yield batch
            if place:
                self.doom.at("between chunks", number)


class CrashingSource(DataSource):
    """Comes before a format, and lets its readers and writers come by their doom."""

    def __init__(self, options: Mapping[str, str]) -> None:
        rest = dict(options)
        self.doom = CrashPlan.read(rest.pop("doom"))
        super().__init__(cast("Any", rest))

    @classmethod
    def name(cls) -> str:
        return f"mortal-{super().name()}"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        reader: Any = super().streamReader(schema)
        # As the format made it from its options, whatever these are.
        reader.__class__ = (
            CrashingLeasedReader if isinstance(reader, LeasedReader) else CrashingTailReader
        )
        reader.doom = self.doom
        return cast("DataSourceStreamReader", reader)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's)
        writer: Any = super().streamWriter(schema, overwrite)
        writer.__class__ = CrashingWriter
        writer.doom = self.doom
        return cast("DataSourceStreamWriter", writer)


class CrashingRsmq(CrashingSource, RsmqSource):
    """RSMQ."""


class CrashingChasqui(CrashingSource, ChasquiSource):
    """ChasquiMQ."""


class CrashingGomq(CrashingSource, GomqSource):
    """GOMQ."""


class CrashingTambo(CrashingSource, TamboSource):
    """Journals."""


def disturbed(rows: DataFrame, doom: CrashPlan) -> DataFrame:
    """Crash writes of files as *doom* plans it: at their beginning, and after some rows."""
    seen, points = count(), {0: "before write", 150: "in sink write"}

    def passed(value: str) -> str:
        if (place := next(seen)) in points:
            doom.at(points[place], doom.planned() - 1)
        return value

    name = rows.columns[0]
    # Without Arrow, which would want pandas.
    return rows.withColumn(name, functions.udf(passed, useArrow=False)(name))


def watch(doom: CrashPlan, batch: int) -> None:
    """Crash once the files are committed and the batch is not yet."""
    while not (Path(doom.folder) / "out" / "_spark_metadata" / str(batch)).exists():
        time.sleep(0.0005)
    doom.at("in sink commit", batch)


def start(spark: SparkSession, url: str, case: dict[str, Any], jvm: int) -> StreamingQuery:
    doom = CrashPlan.read(case["doom"], jvm)
    name = f"mortal-{case['kind']}"
    reading = spark.readStream.format(name).options(url=url, doom=doom.to_json(), **case["options"])
    rows = reading.load()
    if case["sink"] == "files":
        for event in doom.events:
            if event.point == "in sink commit":
                threading.Thread(target=watch, args=(doom, event.batch), daemon=True).start()
        writing = disturbed(rows, doom).writeStream.format("parquet")
        writing = writing.option("path", f"{doom.folder}/out")
    else:
        # What another has had is not there to be written.
        kept = rows.where("fault IS NULL").select(*SINKS[case["kind"]])
        writing = kept.writeStream.format(name)
        writing = writing.options(url=url, doom=doom.to_json(), queue=case["sink"])
    writing = writing.option("checkpointLocation", f"{doom.folder}/checkpoint")
    return writing.trigger(availableNow=True).start()


def begin(spark: SparkSession, url: str, case: dict[str, Any], jvm: int) -> StreamingQuery:
    """Start a query, and again where this machine was too busy for it.

    Spark gives a Python process ten seconds to come up, and no more.
    """
    begun = Path(case["folder"], _BEGUN)
    times = 0
    while True:
        begun.unlink(missing_ok=True)
        query, times = start(spark, url, case, jvm), times + 1
        while query.isActive and not begun.exists():
            time.sleep(0.02)
        if begun.exists() or times == _TIMES:
            return query


def ended(query: StreamingQuery) -> str:
    """Wait for the end of a query; its error, or nothing."""
    try:
        query.awaitTermination()
    except StreamingQueryException as raised:
        return str(raised)
    return ""


def register(spark: SparkSession) -> None:
    """Register the formats that die in a session."""
    for each in (CrashingRsmq, CrashingChasqui, CrashingGomq, CrashingTambo):
        spark.dataSource.register(each)


def main(args: dict[str, Any]) -> None:
    spark = session("crash", master=args["master"], conf=args["conf"])
    gateway: Any = spark.sparkContext._gateway
    register(spark)
    queries = [begin(spark, args["url"], case, gateway.proc.pid) for case in args["cases"]]
    errors = []
    for case, query in zip(args["cases"], queries, strict=True):
        error = ended(query)
        errors += [error] if error else []
        Path(case["folder"], "ended").write_text(error)
    spark.stop()
    sys.exit("\n\n".join(errors) or 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
