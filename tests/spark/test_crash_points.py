"""Wherever a leased stream is killed, each message is in its sink once, and the queue is empty."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.servers import Server
from tests.spark.crash_kinds import JOB, KINDS, Case, both, told
from tests.spark.dying import Event, holds, killed, run

ROWS = 500
WITHIN_S = 300


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(3 * WITHIN_S)
@pytest.mark.parametrize(
    ("kind", "sink", "point"),
    [("rsmq", "files", "before ack"), ("chasqui", "queue", "in sink write")],
)
def test_a_stream_whose_jvm_is_killed_delivers_each_message_once(
    server: Server, db: redis.Redis, tmp_path: Path, kind: str, sink: str, point: str
) -> None:
    case = Case(kind, sink, tmp_path)
    sent = case.begun(server.url, range(4 * ROWS))
    event = Event(point)
    status, log = run(JOB, tmp_path, told(server.url, case.told(event, maxRowsPerBatch=ROWS)))
    assert status != 0
    assert case.doom(event).has_come(), log
    assert ROWS < len(case.rows(db)) <= 2 * ROWS
    assert case.left(db) >= 2 * ROWS
    status, log = run(JOB, tmp_path, told(server.url, case.told(maxRowsPerBatch=ROWS)))
    assert status == 0, log
    assert case.rows(db) == sorted(sent)
    assert case.left(db) == 0


LIVES: list[tuple[tuple[Event, ...], tuple[Event, ...]]] = [
    ((holds("after claim", 1),), (holds("after claim", 1),)),
    ((holds("in read", 2),), (holds("in read", 2),)),
    ((holds("in sink write", 3),), (holds("in sink write", 3),)),
    ((holds("before ack", 4),), (holds("in sink commit", 4),)),
    ((holds("between", 5),), (holds("before ack", 5),)),
    # Nobody can be held while files are committed: the JVM is killed when they are.
    ((holds("before write", 6), Event("in sink commit", 6)), (holds("between", 6),)),
]
"""Where files are in each life when the JVM is killed, and where the other queue is."""


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout((len(LIVES) + 1) * WITHIN_S)
@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_are_killed_at_each_point_deliver_each_message_once(
    server: Server, db: redis.Redis, tmp_path: Path, kind: str
) -> None:
    cases = both(tmp_path, kind)
    sent = [sorted(case.begun(server.url, range(9 * ROWS))) for case in cases]
    for life, events in enumerate(LIVES, 1):
        pairs = list(zip(cases, events, strict=True))
        queries = [case.told(*each, maxRowsPerBatch=ROWS) for case, each in pairs]
        job = told(server.url, *queries, master="local[4]")
        killed(JOB, tmp_path, job, [case.doom(*each) for case, each in pairs], within_s=WITHIN_S)
        for case in cases:
            assert (life - 1) * ROWS <= len(case.rows(db)) <= (life + 1) * ROWS
            assert case.left(db) >= (8 - life) * ROWS
    queries = [case.told(maxRowsPerBatch=ROWS) for case in cases]
    status, log = run(JOB, tmp_path, told(server.url, *queries, master="local[4]"))
    assert status == 0, log
    assert [case.rows(db) for case in cases] == sent
    assert [case.left(db) for case in cases] == [0, 0]
