"""Whatever dies while rows are being written, each is in the queue once in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tests.servers import Server

JOB = Path(__file__).with_name("sink_job.py")
FILES, LINES = 6, 2500


def run(server: Server, folder: Path, point: str) -> tuple[int, str]:
    """The job's status in the end, and what it told."""
    told = folder / "told"
    with told.open("w") as out:
        job = subprocess.Popen(
            [sys.executable, JOB, server.url, folder, point],
            stdout=out,
            stderr=out,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )
        try:
            status = job.wait()
        finally:
            # A JVM, or a worker of one that is gone, may live longer than who started it.
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return status, told.read_text()


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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", ["write", "commit"])
def test_a_query_that_was_killed_goes_on_and_writes_each_row_once(
    rsmq: Rsmq, server: Server, tmp_path: Path, lines: list[str], point: str
) -> None:
    rsmq.create_queue("q")
    status, told = run(server, tmp_path, point)
    assert status != 0
    assert (tmp_path / "killed").exists(), told
    before = bodies(rsmq)
    # The first batch, and of the second as much as was written before the end came.
    assert len(before) >= 2 * LINES + 1000
    assert len(before) < len(lines)
    status, told = run(server, tmp_path, point)
    assert status == 0, told
    assert bodies(rsmq) == lines


@pytest.mark.timeout(300)
def test_a_task_that_is_run_again_writes_its_rows_once(
    rsmq: Rsmq, server: Server, tmp_path: Path, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    status, told = run(server, tmp_path, "retry")
    assert status == 0, told
    assert len(list(tmp_path.glob("failed-*"))) == 2
    assert bodies(rsmq) == sorted(str(n) for n in range(10_000))
    assert rsmq.get_queue_attributes("q").totalsent == 10_000
    [fence] = db.scan_iter(Keys().fence("q", "*"))
    assert db.hlen(fence) == 10
