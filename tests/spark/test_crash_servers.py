"""Executors and servers that die under leased streams: each message once, and the queue empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.servers import Server
from tests.spark import sampling
from tests.spark.crash_kinds import JOB, KINDS, both, job_args
from tests.spark.dying import Event, Job, logged, run

ROWS = 400
WITHIN_S = 500

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(2 * WITHIN_S),
]

SERVER = ("server",)
DEATHS = [("in read", "in sink write"), ("in sink write", "in read"), SERVER]
"""Where executors are killed, under files and under the other queue; or it is the server."""
TRIED = sampling.pairs("servers", [*KINDS], DEATHS)


@pytest.fixture
def own_db(private_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server.url) as client:
        yield client


@pytest.mark.parametrize(("kind", "points"), [each for each in TRIED if each[1] != SERVER])
def test_executors_that_are_killed_lose_nothing_and_double_nothing(
    server: Server, db: redis.Redis, tmp_path: Path, kind: str, points: tuple[str, str]
) -> None:
    cases = both(tmp_path, kind)
    sent = [sorted(case.begun(server.url, range(5 * ROWS))) for case in cases]
    events = [Event(point, batch, "executor") for batch, point in enumerate(points, 1)]
    pairs = list(zip(cases, events, strict=True))
    queries = [case.query_spec(event, maxRowsPerBatch=ROWS) for case, event in pairs]
    conf = {"spark.executor.memory": "512m"}
    job = job_args(server.url, *queries, master="local-cluster[2,1,1024]", conf=conf)
    status, log = run(JOB, tmp_path, job, within_s=WITHIN_S)
    assert status == 0, log
    assert all(case.doom(event).has_come() for case, event in pairs)
    assert [case.rows(db) for case in cases] == sent
    assert [case.left(db) for case in cases] == [0, 0]


@pytest.mark.parametrize("kind", [kind for kind, killed in TRIED if killed == SERVER])
def test_a_killed_and_restarted_server_loses_nothing_and_doubles_nothing(
    private_server: Server, own_db: redis.Redis, tmp_path: Path, kind: str
) -> None:
    cases = both(tmp_path, kind)
    sent = [sorted(case.begun(private_server.url, range(10 * ROWS))) for case in cases]
    queries = [case.query_spec(maxRowsPerBatch=ROWS) for case in cases]
    with Job(JOB, tmp_path, job_args(private_server.url, *queries)) as job:
        for batches in (2, 6, 10, 14):
            job.until(
                lambda: sum(logged(case.folder, "commits") for case in cases) >= batches,  # noqa: B023  (called here)
                WITHIN_S,
            )
            private_server.kill()
            private_server.restart()
        assert job.wait(WITHIN_S) == 0, job.log.read_text()[-6000:]
    assert [case.rows(own_db) for case in cases] == sent
    assert [case.left(own_db) for case in cases] == [0, 0]
