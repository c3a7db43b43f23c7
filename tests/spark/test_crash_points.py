"""A leased stream killed at any point: each message is in its sink once, the queue is empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.servers import Server
from tests.spark import sampling
from tests.spark.crash_kinds import JOB, KINDS, both, job_args
from tests.spark.dying import Event, holds, killed, run

ROWS = 500
WITHIN_S = 300


COMMIT = "in sink commit"
CRASH_POINTS = [
    (("after claim",), ("after claim",)),
    (("in read",), ("in read",)),
    (("in sink write",), ("in sink write",)),
    (("before ack",), (COMMIT,)),
    (("between",), ("before ack",)),
    # Nobody can be held while files are committed: the JVM is killed when they are.
    (("before write", COMMIT), ("between",)),
]
"""Where files are in each life when the JVM is killed, and where the other queue is."""


def events(points: tuple[str, ...], batch: int) -> list[Event]:
    held, *dies = points
    return [holds(held, batch), *(Event(point, batch) for point in dies)]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout((len(CRASH_POINTS) + 1) * WITHIN_S)
@pytest.mark.parametrize(("kind", "crashes"), sampling.spread("killed", [*KINDS], CRASH_POINTS))
def test_streams_that_are_killed_at_each_point_deliver_each_message_once(
    server: Server,
    db: redis.Redis,
    tmp_path: Path,
    kind: str,
    crashes: list[tuple[tuple[str, ...], tuple[str, ...]]],
) -> None:
    cases, batches = both(tmp_path, kind), len(crashes) + 3
    sent = [sorted(case.begun(server.url, range(batches * ROWS))) for case in cases]
    for number, points in enumerate(crashes, 1):
        pairs = [(case, events(each, number)) for case, each in zip(cases, points, strict=True)]
        queries = [case.query_spec(*each, maxRowsPerBatch=ROWS) for case, each in pairs]
        job = job_args(server.url, *queries, master="local[4]")
        killed(JOB, tmp_path, job, [case.doom(*each) for case, each in pairs], within_s=WITHIN_S)
        for case in cases:
            assert (number - 1) * ROWS <= len(case.rows(db)) <= (number + 1) * ROWS
            assert case.left(db) >= (batches - 1 - number) * ROWS
    queries = [case.query_spec(maxRowsPerBatch=ROWS) for case in cases]
    status, log = run(JOB, tmp_path, job_args(server.url, *queries, master="local[4]"))
    assert status == 0, log
    assert [case.rows(db) for case in cases] == sent
    assert [case.left(db) for case in cases] == [0, 0]
