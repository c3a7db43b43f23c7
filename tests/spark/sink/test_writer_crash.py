"""Crashes during a write: in the end each row is in the queue once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tests.servers import Server
from tests.spark import sampling
from tests.spark.dying import CrashPlan, Event, run

JOB = "tests.spark.sink_job"
FILES, LINES = 6, 2500


def bodies(client: Rsmq) -> list[str]:
    return sorted(message.text for message in client.peek_messages("q", 100_000))


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """What the files hold that are to be streamed, in all."""
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        text = "".join(f"{file}-{line}\n" for line in range(LINES))
        path = tmp_path / "in" / f"{file}.txt"
        path.write_text(text)
        # Spark takes the oldest first.
        os.utime(path, (1_700_000_000 + file,) * 2)
    return sorted(f"{file}-{line}" for file in range(FILES) for line in range(LINES))


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_query_resumes_and_writes_each_row_once(
    rsmq: Rsmq, server: Server, tmp_path: Path, lines: list[str]
) -> None:
    rsmq.create_queue("q")
    args = {"url": server.url, "folder": str(tmp_path)}
    for batch, point in enumerate(sampling.some("sinks", ("between chunks", "in sink commit"), 1)):
        doom = CrashPlan(str(tmp_path), (Event(point, batch),))
        status, log = run(JOB, tmp_path, {**args, "doom": doom.to_json()})
        assert status != 0
        assert doom.has_come(), log
        # The batches before, and of this one as much as was written before the end came.
        assert 1000 <= len(bodies(rsmq)) - batch * 2 * LINES <= 2 * LINES
    status, log = run(JOB, tmp_path, {**args, "doom": CrashPlan(str(tmp_path)).to_json()})
    assert status == 0, log
    assert bodies(rsmq) == lines


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_task_that_is_run_again_writes_its_rows_once(
    rsmq: Rsmq, server: Server, tmp_path: Path, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    args = {"url": server.url, "folder": str(tmp_path), "retry": True}
    status, log = run(JOB, tmp_path, args)
    assert status == 0, log
    assert len(list(tmp_path.glob("failed-*"))) == 2
    assert bodies(rsmq) == sorted(str(n) for n in range(10_000))
    assert rsmq.get_queue_attributes("q").totalsent == 10_000
    [fence] = db.scan_iter(Keys().fence("q", "*"))
    assert db.hlen(fence) == 10
