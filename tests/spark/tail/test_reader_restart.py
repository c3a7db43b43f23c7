"""Queries that are killed, and go on from their checkpoints: every entry once in the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from tests.servers import Server
from tests.spark import crash_job, sampling
from tests.spark.crash_kinds import JOB, job_args
from tests.spark.dying import CrashPlan, Event, holds, killed, raises, run
from tests.spark.tail_job import TAILS, committed
from tests.spark.tailing import PROTOCOL, fill

WITHIN_S = 300
LIMITS = {"maxRowsPerBatch": "500", "exactRows": "true"}


@pytest.fixture
def own_db(private_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server.url) as client:
        yield client


@pytest.mark.slow
def test_a_query_that_fails_inside_a_batch_resumes_after_a_server_restart(
    spark: SparkSession, private_server: Server, own_db: redis.Redis, tmp_path: Path
) -> None:
    crash_job.register(spark)

    def follow(*events: Event) -> str:
        case = tail.query_spec(tmp_path, *events, **LIMITS)
        return crash_job.ended(crash_job.start(spark, private_server.url, case, jvm=0))

    tail = TAILS["journal"]
    tail.fill(own_db, range(1000))
    assert follow(raises("in sink write", 1))
    assert len(tail.rows(tmp_path)) == 500
    private_server.kill()
    private_server.restart()
    tail.fill(own_db, range(1000, 1500))
    assert follow() == ""
    assert tail.rows(tmp_path) == list(map(str, range(1500)))


POINTS = sampling.some("tails", ("after claim", "in read", "in sink write", "between"), 2)
IN_COMMIT = sampling.some("commits of tails", [*TAILS], 1)


def crash_plans() -> Iterator[dict[str, tuple[Event, ...]]]:
    """Where each query is, in each life, when the JVM is killed."""
    for batch, point in enumerate(POINTS, 1):
        yield {name: (holds(point, batch),) for name in TAILS}
    # Nobody can be held while files are committed: the JVM is killed when they are.
    for batch, dies in enumerate(IN_COMMIT, len(POINTS) + 1):
        last = (holds("before write", batch), Event("in sink commit", batch))
        yield {name: last if name == dies else (holds("in read", batch),) for name in TAILS}


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(9 * WITHIN_S)
def test_queries_that_are_killed_at_each_point_leave_no_gap_and_no_double(
    server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    for tail in TAILS.values():
        tail.fill(db, range(5000))
    for events in crash_plans():
        queries = [
            tail.query_spec(tmp_path / name, *events[name], **LIMITS)
            for name, tail in TAILS.items()
        ]
        dooms = [CrashPlan(str(tmp_path / name), events[name]) for name in TAILS]
        job = job_args(server.url, *queries, master="local[8]")
        killed(JOB, tmp_path, job, dooms, within_s=WITHIN_S)
    for tail in TAILS.values():
        tail.fill(db, range(5000, 5500))
    queries = [tail.query_spec(tmp_path / name, **LIMITS) for name, tail in TAILS.items()]
    status, log = run(JOB, tmp_path, job_args(server.url, *queries))
    assert status == 0, log
    for name, tail in TAILS.items():
        assert tail.rows(tmp_path / name) == list(map(str, range(5500))), name


@pytest.mark.slow
def test_a_batch_that_was_written_but_not_noted_is_not_written_twice(
    spark: SparkSession, private_server: Server, own_db: redis.Redis, tmp_path: Path
) -> None:
    options = {"url": private_server.url, "protocol": PROTOCOL, "queue": "q", **LIMITS}

    def follow() -> None:
        source = spark.readStream.format("tambo").options(**options).load()
        writer = source.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WITHIN_S)

    fill(own_db, "q", range(700))
    follow()
    last = max(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name)
    )
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    fill(own_db, "q", range(700, 900))
    follow()
    assert sorted(committed(tmp_path), key=int) == list(map(str, range(900)))
