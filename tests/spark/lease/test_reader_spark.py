"""Leased streams in a real Spark: what a user sees, also when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tambomq.errors import SettingsError
from tambomq.rsmq import Rsmq
from tambomq.spark.core import schemas
from tambomq.spark.lease.verdicts import settle
from tests.servers import Server


@pytest.fixture
def queue(rsmq: Rsmq) -> Rsmq:
    rsmq.create_queue("q")
    return rsmq


def stream(spark: SparkSession, server: Server, **options: Any) -> DataFrame:
    selector = {"url": server.url, "queue": "q", "lease": "l", **options}
    return spark.readStream.format("rsmq").options(**selector).load()


def run(rows: DataFrame, folder: Path, act: Any) -> None:
    """Hand batches to *act* until there is nothing left."""
    writer = rows.writeStream.foreachBatch(act).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def refusal(rows: DataFrame, folder: Path) -> str:
    """What the user reads when a query fails."""
    with pytest.raises(PySparkException) as error:
        run(rows, folder, lambda *_: None)
    return str(error.value)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_stream_is_settled_row_by_row(
    spark: SparkSession, server: Server, queue: Rsmq, tmp_path: Path
) -> None:
    done, again, dead = queue.send_messages("q", [b"done", b"again", b"dead"])
    rows = stream(spark, server)
    assert rows.schema.names == [column.name for column in schemas.RSMQ_LEASED]
    seen: list[str] = []

    def judge(batch: DataFrame, _: int) -> None:
        text = f.col("body").cast("string")
        verdict = f.when(text == "again", "retry").when(text == "dead", "dead").otherwise("done")
        judged = batch.withColumns(
            {"verdict": verdict, "delay_ms": f.lit(3_600_000), "reason": f.lit("no heir")}
        )
        seen.extend(row.id for row in batch.collect())
        assert settle(judged, lease="l", url=server.url) == 2
        with pytest.raises(SettingsError, match="no column verdict"):
            settle(batch, lease="l", url=server.url)

    run(rows, tmp_path, judge)
    assert seen == [done, again, dead]
    (left,) = queue.peek_messages("q", 9)
    assert (left.id, left.rc) == (again, 1)
    (letter,) = queue.peek_messages("q-dead", 9)
    assert (letter.id, letter.reason) == (dead, "no heir")


@pytest.mark.timeout(240)
def test_a_missing_queue_and_a_lease_in_a_batch_read_are_refused(
    spark: SparkSession, server: Server, queue: Rsmq, tmp_path: Path
) -> None:
    missing = refusal(stream(spark, server, queue="none"), tmp_path)
    assert "queue 'none' does not exist" in missing
    with pytest.raises(PySparkException, match="lease must be left out of a batch read"):
        spark.read.format("rsmq").options(url=server.url, queue="q", lease="l").load().collect()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_second_query_with_the_same_lease_is_refused(
    spark: SparkSession, server: Server, queue: Rsmq, tmp_path: Path
) -> None:
    first = stream(spark, server).writeStream.format("noop")
    query = first.option("checkpointLocation", str(tmp_path / "first")).start()
    try:
        query.processAllAvailable()
        error = refusal(stream(spark, server), tmp_path)
        assert "lease 'l' on queue 'q' is held by process" in error
    finally:
        query.stop()


def test_a_source_without_verdicts_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingsError, match="GOMQ has neither retries nor dead letters"):
        settle(spark.range(1), lease="l", source="gomq")
