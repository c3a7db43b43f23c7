"""A streaming query in a process of its own, for tests that kill it. Told in JSON.

It follows a journal into Parquet files. A row whose body is ``stop`` holds its batch up until the
file ``release`` is there; before that it makes the file ``held``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
from pyspark.sql.functions import udf

from tambomq.spark import session
from tests.servers import eventually

_HELD_FOR_S = 50


def main(told: dict[str, Any]) -> None:
    conf = {"spark.local.dir": told["home"], "spark.sql.shuffle.partitions": 2}
    spark = session("tail", master="local[2]", conf=conf)
    rows = spark.readStream.format("tambo").options(**told["options"]).load()
    # Without Arrow, which would want pandas.
    held = udf(_holding(Path(told["home"])), "binary", useArrow=False)
    writer = rows.withColumn("body", held("body")).writeStream.format("parquet")
    writer = writer.option("path", told["out"])
    if told.get("once"):
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", told["checkpoint"]).start()
    query.awaitTermination()
    spark.stop()


def _holding(home: Path) -> Callable[[bytes], bytes]:
    def hold(body: bytes) -> bytes:
        if body == b"stop" and not (home / "release").exists():
            (home / "held").touch()
            until = time.monotonic() + _HELD_FOR_S
            while not (home / "release").exists() and time.monotonic() < until:
                time.sleep(0.05)
        return body

    return hold


@contextmanager
def tail_job(
    home: Path, *, once: bool = False, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one; it and its JVM are gone when the block ends."""
    told: dict[str, Any] = {"once": once, "options": options}
    told |= {"home": str(home), "out": str(home / "out"), "checkpoint": str(home / "checkpoint")}
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(told)],
            stderr=log,
            start_new_session=True,  # so that the JVM can be killed with it
        )
    try:
        yield process
    finally:
        kill(process)
        (home / "release").touch()


def until(process: subprocess.Popen[bytes], condition: Callable[[], bool], within_s: float) -> None:
    """Wait for *condition*, and no longer than the job runs."""
    eventually(lambda: condition() or process.poll() is not None, within_s=within_s)
    assert process.poll() is None


def kill(process: subprocess.Popen[bytes]) -> None:
    """End driver and JVM as a crash would."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def committed(home: Path) -> list[str]:
    """Return the bodies in the files that the sink's own log names."""
    paths = set[str]()
    for log in (home / "out" / "_spark_metadata").glob("[0-9]*"):
        version, *lines = log.read_text().splitlines()
        assert version == "v1"
        paths |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    tables = [pyarrow.parquet.read_table(path, partitioning=None) for path in sorted(paths)]
    return [body.decode() for table in tables for body in table["body"].to_pylist()]


def batches(home: Path) -> int:
    """Return how many batches are done."""
    return len(list((home / "checkpoint" / "commits").glob("[0-9]*")))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
