"""Queries that are killed, and go on from their checkpoints: every entry once in the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tests.servers import Server
from tests.spark.tail_job import batches, committed, kill, tail_job, until
from tests.spark.tailing import PROTOCOL, fill

WITHIN_S = 90
TWICE = pytest.mark.timeout(3 * WITHIN_S)  # two starts of Spark, on a machine with others


@pytest.fixture
def own_db(private_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server.url) as client:
        yield client


def options(server: Server, **more: Any) -> dict[str, Any]:
    return {
        "url": server.url,
        "protocol": PROTOCOL,
        "queue": "q",
        "maxRowsPerBatch": "500",
        "exactRows": "true",
        **more,
    }


@TWICE
def test_a_driver_that_is_killed_inside_a_batch_leaves_no_gap_and_no_double(
    private_server: Server, own_db: redis.Redis, tmp_path: Path
) -> None:
    bodies = [*range(1200), "stop", *range(1200, 2000)]
    fill(own_db, "q", bodies)
    with tail_job(tmp_path, **options(private_server)) as job:
        until(job, (tmp_path / "held").exists, WITHIN_S)
        kill(job)
    assert 0 < len(committed(tmp_path)) < len(bodies)
    fill(own_db, "q", range(2000, 2500))
    with tail_job(tmp_path, once=True, **options(private_server)) as job:
        assert job.wait(WITHIN_S) == 0
    assert sorted(committed(tmp_path)) == sorted(map(str, [*bodies, *range(2000, 2500)]))


@TWICE
def test_a_driver_that_is_killed_between_batches_goes_on_though_the_server_restarted(
    private_server: Server, own_db: redis.Redis, tmp_path: Path
) -> None:
    fill(own_db, "q", range(1500))
    with tail_job(tmp_path, **options(private_server)) as job:
        until(job, lambda: batches(tmp_path) == 3, WITHIN_S)
        kill(job)
    private_server.kill()
    private_server.restart()
    fill(own_db, "q", range(1500, 2100))
    with tail_job(tmp_path, once=True, **options(private_server)) as job:
        assert job.wait(WITHIN_S) == 0
    assert sorted(committed(tmp_path), key=int) == list(map(str, range(2100)))


def test_a_batch_that_was_written_but_not_noted_is_not_written_twice(
    spark: SparkSession, private_server: Server, own_db: redis.Redis, tmp_path: Path
) -> None:
    def run() -> None:
        source = spark.readStream.format("tambo").options(**options(private_server)).load()
        writer = source.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WITHIN_S)

    fill(own_db, "q", range(700))
    run()
    last = max(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    fill(own_db, "q", range(700, 900))
    run()
    assert sorted(committed(tmp_path), key=int) == list(map(str, range(900)))
