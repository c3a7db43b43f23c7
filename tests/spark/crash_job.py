"""Streams that die: a process for `test_crash_points` and its like. Told in JSON.

It is told the url, master and conf, and cases: each with kind, sink, folder, options and doom.

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

from tambomq.spark import session
from tambomq.spark.chasqui import ChasquiSource
from tambomq.spark.gomq import GomqSource
from tambomq.spark.leased import LeasedReader
from tambomq.spark.rsmq import RsmqSource
from tambomq.spark.sink import StreamWriter
from tambomq.spark.tail import TailReader
from tambomq.spark.tambo import TamboSource
from tambomq.store.ledger import Claim
from tests.spark.dying import Doom

SINKS = {"rsmq": ("body",), "chasqui": ("payload", "name"), "gomq": ("payload",)}
"""The columns that are written."""
_BEGUN = "begun"
_TIMES = 20


class MortalReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Comes by the points of a batch that are in a reader."""

    doom: Doom

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


class MortalLeased(MortalReader, LeasedReader):
    """A queue."""

    def _claimed(self, lease: Any, number: int, most: int) -> Claim:
        self.doom.at("between", self.doom.planned(), and_us=True)
        return super()._claimed(lease, number, most)


class MortalTail(MortalReader, TailReader):
    """A stream of which nothing is consumed."""

    def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802  (Spark's name)
        self.doom.at("between", self.doom.planned(), and_us=True)
        return super().latestOffset(start, limit)


class MortalWriter(StreamWriter):
    """Comes by the points of a batch that are in our sinks."""

    doom: Doom

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


class Mortal(DataSource):
    """Comes before a format, and lets its readers and writers come by their doom."""

    def __init__(self, options: Mapping[str, str]) -> None:
        rest = dict(options)
        self.doom = Doom.read(rest.pop("doom"))
        super().__init__(cast("Any", rest))

    @classmethod
    def name(cls) -> str:
        return f"mortal-{super().name()}"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's)
        reader: Any = super().streamReader(schema)
        # As the format made it from its options, whatever these are.
        reader.__class__ = MortalLeased if isinstance(reader, LeasedReader) else MortalTail
        reader.doom = self.doom
        return cast("DataSourceStreamReader", reader)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's)
        writer: Any = super().streamWriter(schema, overwrite)
        writer.__class__ = MortalWriter
        writer.doom = self.doom
        return cast("DataSourceStreamWriter", writer)


class MortalRsmq(Mortal, RsmqSource):
    """RSMQ."""


class MortalChasqui(Mortal, ChasquiSource):
    """ChasquiMQ."""


class MortalGomq(Mortal, GomqSource):
    """GOMQ."""


class MortalTambo(Mortal, TamboSource):
    """Journals."""


def disturbed(rows: DataFrame, doom: Doom) -> DataFrame:
    """Let files come by their doom: where they begin, and after some rows."""
    seen, points = count(), {0: "before write", 150: "in sink write"}

    def passed(value: str) -> str:
        if (place := next(seen)) in points:
            doom.at(points[place], doom.planned() - 1)
        return value

    name = rows.columns[0]
    # Without Arrow, which would want pandas.
    return rows.withColumn(name, functions.udf(passed, useArrow=False)(name))


def watch(doom: Doom, batch: int) -> None:
    """Come by when the files are committed, and the batch is not yet."""
    while not (Path(doom.folder) / "out" / "_spark_metadata" / str(batch)).exists():
        time.sleep(0.0005)
    doom.at("in sink commit", batch)


def start(spark: SparkSession, url: str, case: dict[str, Any], jvm: int) -> StreamingQuery:
    doom = Doom.read(case["doom"], jvm)
    name = f"mortal-{case['kind']}"
    reading = spark.readStream.format(name).options(url=url, doom=doom.told(), **case["options"])
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
        writing = writing.options(url=url, doom=doom.told(), queue=case["sink"])
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
    """Let a session know the formats that die."""
    for each in (MortalRsmq, MortalChasqui, MortalGomq, MortalTambo):
        spark.dataSource.register(each)


def main(told: dict[str, Any]) -> None:
    spark = session("crash", master=told["master"], conf=told["conf"])
    gateway: Any = spark.sparkContext._gateway
    register(spark)
    queries = [begin(spark, told["url"], case, gateway.proc.pid) for case in told["cases"]]
    errors = []
    for case, query in zip(told["cases"], queries, strict=True):
        error = ended(query)
        errors += [error] if error else []
        Path(case["folder"], "ended").write_text(error)
    spark.stop()
    sys.exit("\n\n".join(errors) or 0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
