"""Streams that fail where others are killed, on the session of all tests: each message once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tests.servers import Server
from tests.spark import crash_job, sampling
from tests.spark.crash_kinds import KINDS, Case
from tests.spark.dying import CrashPlan, raises
from tests.spark.tail_job import TAILS

ROWS = 200
LIMITS = {"maxRowsPerBatch": ROWS, "partitions": 1}
IN_SINK = "in sink commit"
POINTS = (
    *("between", "after claim", "before read", "in read"),
    *("before write", "in sink write", IN_SINK, "before ack"),
)
RAISED = sampling.some("raised", POINTS, 5)
"""Killed queries of `test_crash_points` die at all of them."""
TAIL_POINTS = ("after claim", "in read", "in sink write", "between")
TO_QUEUES = sampling.some("to queues", [*KINDS], 2)

Live = Callable[[dict[str, Any]], str]


@pytest.fixture
def live(spark: SparkSession, server: Server) -> Live:
    """Run a query to its end; return its error, if any."""
    crash_job.register(spark)
    return lambda case: crash_job.ended(crash_job.start(spark, server.url, case, jvm=0))


@pytest.mark.parametrize(("kind", "points"), sampling.spread("raising", [*KINDS], RAISED))
def test_a_stream_that_fails_anywhere_resumes_and_delivers_each_message_once(
    live: Live, server: Server, db: redis.Redis, tmp_path: Path, kind: str, points: list[str]
) -> None:
    # Only a sink of ours has a commit of its own that can fail.
    sink = "queue" if kind in TO_QUEUES or IN_SINK in points else "files"
    case = Case(kind, sink, tmp_path / "case")
    sent = sorted(case.begun(server.url, range((len(points) + 1) * ROWS)))
    for batch, point in enumerate(points):
        event = raises(point, batch)
        assert live(case.query_spec(event, **LIMITS)), point
        assert case.doom(event).has_come(), point
        # The batches before are there; of this one, what its sink had taken before it failed.
        assert batch * ROWS <= len(case.rows(db)) <= (batch + 1) * ROWS, point
        assert case.left(db) >= ROWS, point
    assert live(case.query_spec(**LIMITS)) == ""
    assert case.rows(db) == sent
    assert case.left(db) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sampling.some("raising tails", [*TAILS], 1))
def test_a_tail_that_fails_anywhere_resumes_without_gaps_or_duplicates(
    live: Live, db: redis.Redis, tmp_path: Path, name: str
) -> None:
    tail, points = TAILS[name], sampling.some("raising in tails", TAIL_POINTS, 2)
    limits = {**LIMITS, "exactRows": True}
    tail.fill(db, range((len(points) + 1) * ROWS))
    for batch, point in enumerate(points):
        event = raises(point, batch)
        assert live(tail.query_spec(tmp_path, event, **limits)), point
        assert CrashPlan(str(tmp_path), (event,)).has_come(), point
        assert len(tail.rows(tmp_path)) == batch * ROWS, point
    assert live(tail.query_spec(tmp_path, **limits)) == ""
    assert tail.rows(tmp_path) == list(map(str, range((len(points) + 1) * ROWS)))
