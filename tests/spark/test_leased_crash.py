"""Wherever a leased stream is killed, each message is in its files once, and the queue is empty."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tambomq.rsmq import Rsmq
from tests.servers import Server
from tests.spark.leased_job import POINTS, ROWS

JOB = Path(__file__).with_name("leased_job.py")
MESSAGES = 2000


def run(server: Server, folder: Path, point: str) -> tuple[int, str]:
    """The job's end: its status, and what it told."""
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
            # Its JVM outlives it where it was cut off.
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return status, told.read_text()


def committed(folder: Path) -> list[str]:
    """The ids in the files that the sink has committed."""
    names = []
    for log in (folder / "out" / "_spark_metadata").glob("[0-9]*"):
        lines = log.read_text().splitlines()[1:]
        names += [line.split('"path":"file://')[1].split('"')[0] for line in lines]
    return [id.as_py() for name in names for id in pq.read_table(name, columns=["id"])["id"]]


OFTEN = ("after claim", "before ack")
"""The points that are the least alike; the others are for when there is time."""
EACH = [
    pytest.param(point, marks=() if point in OFTEN else pytest.mark.interop) for point in POINTS
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", EACH)
def test_a_stream_that_was_killed_goes_on_and_delivers_each_message_once(
    rsmq: Rsmq, server: Server, tmp_path: Path, point: str
) -> None:
    rsmq.create_queue("q")
    sent = rsmq.send_messages("q", [b"%d" % number for number in range(MESSAGES)])
    status, told = run(server, tmp_path, point)
    assert status != 0
    assert (tmp_path / "killed").exists(), told
    assert len(rsmq.peek_messages("q", MESSAGES)) >= MESSAGES - 2 * ROWS
    status, told = run(server, tmp_path, point)
    assert status == 0, told
    assert sorted(committed(tmp_path)) == sorted(sent)
    assert rsmq.peek_messages("q", MESSAGES) == []
