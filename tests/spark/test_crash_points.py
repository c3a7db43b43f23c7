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
MASTER = "local[12]"
"""A thread for each task of six queries: one that is held keeps its own."""

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


TRIED = sampling.spread("killed", [*KINDS], CRASH_POINTS)


def crashes_at_once() -> list[list[tuple[str, ...]]]:
    """Where all queries are when the JVM is killed, each time: two of each protocol.

    They share a JVM, so that fewer are started. No two protocols are at the same points, because
    a query that dies in its commit takes the others along.
    """
    turned = [crashes[turn:] + crashes[:turn] for turn, (_, crashes) in enumerate(TRIED)]
    return [
        [point for pair in together for point in pair] for together in zip(*turned, strict=True)
    ]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout((len(CRASH_POINTS) + 1) * WITHIN_S)
def test_streams_that_are_killed_at_each_point_deliver_each_message_once(
    server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    cases = [case for kind, _ in TRIED for case in both(tmp_path / kind, kind)]
    batches = len(crashes_at_once()) + 3
    sent = [sorted(case.begun(server.url, range(batches * ROWS))) for case in cases]
    for number, points in enumerate(crashes_at_once(), 1):
        pairs = [(case, events(each, number)) for case, each in zip(cases, points, strict=True)]
        queries = [case.query_spec(*each, maxRowsPerBatch=ROWS) for case, each in pairs]
        job = job_args(server.url, *queries, master=MASTER)
        killed(JOB, tmp_path, job, [case.doom(*each) for case, each in pairs], within_s=WITHIN_S)
        for case in cases:
            assert (number - 1) * ROWS <= len(case.rows(db)) <= (number + 1) * ROWS, case
            assert case.left(db) >= (batches - 1 - number) * ROWS, case
    queries = [case.query_spec(maxRowsPerBatch=ROWS) for case in cases]
    status, log = run(JOB, tmp_path, job_args(server.url, *queries, master=MASTER))
    assert status == 0, log
    assert [case.rows(db) for case in cases] == sent
    assert [case.left(db) for case in cases] == [0] * len(cases)
