"""Jobs of ChasquiMQ and payloads of GOMQ as leased streams, in a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tambomq.chasqui import BlockingQueue
from tambomq.gomq import wire
from tests.servers import Server


def streamed(spark: SparkSession, folder: Path, kind: str, **options: Any) -> list[Any]:
    """All rows that a stream gives until there is nothing left."""
    rows: list[Any] = []
    stream = spark.readStream.format(kind).options(lease="l", **options).load()
    writer = stream.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(folder / kind))
    writer.start().awaitTermination()
    return rows


def test_jobs_are_streamed_once_and_gone(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    with BlockingQueue("q", redis_url=server.url) as queue:
        queue.add_bulk([{"name": "mail", "data": n} for n in range(50)])
        rows = streamed(spark, tmp_path, "chasqui", url=server.url, queue="q")
        assert [row.name for row in rows] == ["mail"] * 50
        assert len({row.id for row in rows}) == 50
        # The last batch is acknowledged when the query goes on.
        assert streamed(spark, tmp_path, "chasqui", url=server.url, queue="q") == []
        assert queue.get_job_counts().waiting == 0


@pytest.mark.slow
def test_payloads_are_streamed_once_and_gone(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    db.rpush("QUEUE_k", *(wire.encode(f"{n:020}", "", b"%d" % n) for n in range(50)))
    rows = streamed(spark, tmp_path, "gomq", url=server.url, queue="k")
    assert [bytes(row.payload) for row in rows] == [b"%d" % n for n in range(50)]
    assert streamed(spark, tmp_path, "gomq", url=server.url, queue="k") == []
    assert db.llen("QUEUE_k") == 0


@pytest.mark.parametrize("kind", ["chasqui", "gomq"])
def test_a_batch_read_refuses_a_lease(spark: SparkSession, server: Server, kind: str) -> None:
    options = {"url": server.url, "queue": "q", "lease": "l"}
    with pytest.raises(PySparkException, match="lease must be left out"):
        spark.read.format(kind).options(**options).load().count()
