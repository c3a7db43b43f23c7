"""A pipeline that is killed, again and again: the same tables as if it had never been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tambomq.pipeline.lake.lake import BRONZE, Lake
from tests.pipeline import comparing
from tests.pipeline.workload import Workload
from tests.servers import Server, eventually
from tests.spark import sampling

WITHIN_S = 400
SIZES = [(1000, 30, "1000")] + ([(100_000, 120, "150000")] if sampling.is_whole() else [])
"""How many jobs, in how much time, and how many rows a batch has."""
COMMAND = (sys.executable, "-c", "from tambomq.cli.main import main; main()", "pipeline", "run")


@contextmanager
def pipeline(server: Server, lake: Lake, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start one; it and its JVM are gone when the block ends."""
    options = ("--redis-url", server.url, "--lake", str(lake.path), "--master", "local[2]")
    with (lake.path.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, *options, "--watermark", "0", "--json", *more],
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that the JVM can be killed with it
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """Wait for *condition*, and no longer than the pipeline runs."""
    eventually(lambda: condition() or process.poll() is not None, within_s=WITHIN_S)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End driver and JVM as a crash would."""
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def entries(lake: Lake) -> int:
    return Lake.open(lake.path).log.version().number


def killed_three_times(server: Server, lake: Lake, rows: str) -> None:
    """Kill a pipeline in its first batch, right after a commit, and while it folds."""
    once = ("--once", "--batch-rows", rows)
    staging = lake.path / "staging"
    with pipeline(server, lake, *once) as process:
        until(process, lambda: any(staging.iterdir()))
        kill(process)
    assert entries(lake) == 0
    with pipeline(server, lake, *once) as process:
        until(process, lambda: entries(lake) > 0)
        kill(process)
    done = entries(lake)
    with pipeline(server, lake, *once) as process:
        until(process, lambda: entries(lake) > done and any(staging.glob("*/lifecycles")))
        kill(process)
    with pipeline(server, lake, *once) as process:
        assert process.wait(WITHIN_S) == 0, (lake.path.parent / "log").read_text()[-2000:]


def truly(spark: SparkSession, lake: Lake, traffic: Workload) -> None:
    found = Lake.open(lake.path)
    comparing.is_bronze(spark, found, traffic.lifecycles)
    comparing.is_silver(spark, found, traffic.lifecycles)
    comparing.is_gold(spark, found, traffic.lifecycles)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(6 * WITHIN_S)
@pytest.mark.parametrize(("jobs", "minutes", "batch_rows"), SIZES)
def test_a_pipeline_that_is_killed_three_times_leaves_no_gap_and_no_double(
    spark: SparkSession, server: Server, lake: Lake, jobs: int, minutes: int, batch_rows: str
) -> None:
    traffic = Workload(server.url, minutes=minutes)
    traffic.fill(jobs)
    traffic.close()
    killed_three_times(server, lake, batch_rows)
    truly(spark, lake, traffic)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(2 * WITHIN_S)
def test_an_interrupt_ends_it_after_its_batch(server: Server, lake: Lake) -> None:
    traffic = Workload(server.url, redriven=0)
    traffic.fill(60)
    with pipeline(server, lake, "--every", "1s") as process:
        until(process, lambda: entries(lake) > 0)
        traffic.fill(60)
        traffic.close()
        total = sum(lifecycle.events for lifecycle in traffic.lifecycles)
        until(process, lambda: _rows(lake) == total)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
    assert [*(lake.path / "staging").iterdir()] == []


def _rows(lake: Lake) -> int:
    return sum(file.rows for file in Lake.open(lake.path).log.version().of(BRONZE))
