"""Our formats in a Spark of two cores; one session for all rounds.

Rows go to Spark's ``noop`` sink, which takes all columns of all rows and forgets them. The first
turn of a kind is taken twice, and its first half forgotten: the JVM compiles what is hot.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.players.talk import play
from tambomq.spark import session
from tambomq.store.call import Call
from tambomq.store.sync import Store

_LOOK_EVERY_S = 0.1
_COUNTERS = {"rsmq": "ZCARD", "chasqui": "XLEN", "gomq": "LLEN"}
_warm: set[str] = set()


@cache
def spark() -> SparkSession:
    """Return the session."""
    conf = {"spark.sql.shuffle.partitions": 2, "spark.local.dir": tempfile.mkdtemp("-bench")}
    return session("benchmarks", master="local[2]", conf=conf)


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """What is measured here."""
    jvm: Any = spark().sparkContext._jvm  # noqa: SLF001  (nothing else tells its version)
    runtime = f"Java {jvm.java.lang.System.getProperty('java.version')}, local[2]"
    return {"version": f"TamboMQ {version('tambomq')} on Spark {spark().version} ({runtime})"}


def read(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a table once."""
    rows = spark().read.format(order["format"]).options(url=order["url"], **order["with"])

    def run() -> float:
        began = time.perf_counter()
        rows.load().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    if _is_first(order) and (found := rows.load().count()) != order["count"]:
        raise RuntimeError(f"{found} rows of {order['count']}")
    return {"rate": order["count"] / _warmed(order, run)}


def read_watched(order: Mapping[str, Any]) -> dict[str, float]:
    """Read a table once, and see how large the workers become."""
    with _watched() as peaks:
        result = read(order)
    # In MB, as the limit is said: resident, with what they share with the process they come of.
    return {**result, "largest": max(peaks.values()) * 1024 / 1e6}


def stream(order: Mapping[str, Any]) -> dict[str, float]:
    """Read what a stream has, batch by batch, from the beginning of the first to the end."""

    def run() -> float:
        rows = spark().readStream.format(order["format"])
        return _run(rows.options(url=order["url"], **order["with"]).load(), order["count"])

    if "lease" not in order["with"]:
        return {"rate": order["count"] / _warmed(order, run)}
    took_s = run()
    if left := _stored(order):
        raise RuntimeError(f"{left} messages are left")
    return {"rate": order["count"] / took_s}


def write(order: Mapping[str, Any]) -> dict[str, float]:
    """Append rows to a queue."""
    body = f.lit(order["body"])
    if order["format"] != "chasqui":
        # Text is packed there, as the peer does.
        body = body.cast("binary")
    # Made before the clock starts, and for both cores.
    rows = (
        spark().range(order["count"], numPartitions=2).select(body.alias(order["column"])).cache()
    )
    rows.count()

    def run() -> float:
        began = time.perf_counter()
        to = rows.write.format(order["format"]).mode("append")
        to.options(url=order["url"], **order["with"]).save()
        return time.perf_counter() - began

    before = _stored(order)
    took_s = run()
    if _is_first(order):
        _warm.add(_kind(order))
        before, took_s = _stored(order), run()
    if (written := _stored(order) - before) != order["count"]:
        raise RuntimeError(f"{written} of {order['count']} were written")
    rows.unpersist()
    return {"rate": order["count"] / took_s}


def _kind(order: Mapping[str, Any]) -> str:
    return f"{order['task']} {order['format']} {order['with'].get('table')}"


def _is_first(order: Mapping[str, Any]) -> bool:
    return _kind(order) not in _warm


def _warmed(order: Mapping[str, Any], run: Callable[[], float]) -> float:
    if _is_first(order):
        run()
        _warm.add(_kind(order))
    return run()


def _run(rows: DataFrame, count: int) -> float:
    """Run a query over *count* rows; return how many seconds it took after it had begun."""
    with tempfile.TemporaryDirectory() as folder:
        to = rows.writeStream.format("noop").option("checkpointLocation", folder)
        query = to.trigger(availableNow=True).start()
        query.awaitTermination()
        ended = time.time()
    batches = query.recentProgress
    if (found := sum(each.numInputRows for each in batches)) != count:
        raise RuntimeError(f"{found} rows of {count}")
    return ended - datetime.fromisoformat(batches[0].timestamp).timestamp()


def _stored(order: Mapping[str, Any]) -> int:
    store = Store(order["url"])
    call = Call(_COUNTERS[order["format"]], (order["key"],), (), decode=int)
    found = store.run(call)
    store.close()
    return found


# ── how large workers become ─────────────────────────────────────────────────


@contextmanager
def _watched() -> Iterator[dict[int, int]]:
    """Collect the peak memory of all Python workers, by process id."""
    peaks: dict[int, int] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            for pid in _workers():
                peaks[pid] = max(peaks.get(pid, 0), _peak_kib(pid))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield peaks
    finally:
        over.set()
        looking.join()


def _workers() -> list[int]:
    """Return those that come of the JVM's Python: that itself does nothing but make them."""
    return [
        worker
        for java in _children(os.getpid())
        for daemon in _children(java)
        for worker in _children(daemon)
    ]


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(each) for task in tasks for each in (task / "children").read_text().split()]
    except OSError:
        # It is gone.
        return []


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) if found else 0


def _end() -> None:
    spark().stop()
    gateway: Any = SparkContext._gateway  # noqa: SLF001  (Spark leaves its JVM to the end of the process)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    # What the JVM prints is no answer.
    answers = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(answers, "w")
    try:
        play(
            {
                "about": about,
                "read": read,
                "read watched": read_watched,
                "stream": stream,
                "write": write,
            }
        )
    finally:
        _end()
