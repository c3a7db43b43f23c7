"""The jobs of ``tambo pipeline`` in one Spark session for all rounds, so without its start."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.players.spark_tables import about, spark
from benchmarks.players.talk import play
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq import redrive as dead
from tambomq.pipeline.dlq.queues import DeadLetterQueues
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.lake import Lake
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of, migrate, move_name
from tambomq.store.sync import Store

_warm: list[bool] = []


def lake(order: Mapping[str, Any]) -> dict[str, float]:
    """Fill an empty lake with all events of a queue, and another with those of a tenth as many."""
    if not _warm:
        _filled(order, "small")
        _warm.append(True)
    small, large = _filled(order, "small"), _filled(order, "large")
    return {"rate": order["count"] / large, "growth": large / small}


def _filled(order: Mapping[str, Any], which: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        made = Lake.make(Path(folder) / "lake")
        options = PipelineOptions(order["url"], queues=[f"chasqui:{order[which]}"], once=True)
        began = time.perf_counter()
        rows = sum(each.rows for each in Pipeline(spark(), made, options).follow(lambda: False))
        took_s = time.perf_counter() - began
    wanted = order["count"] if which == "large" else order["count"] // 10
    if rows != wanted:
        raise RuntimeError(f"{rows} rows of {wanted}")
    return took_s


def move(order: Mapping[str, Any]) -> dict[str, float]:
    """Move a queue of RSMQ to one of ChasquiMQ."""
    here = QueueLocation(Address("rsmq", order["queue"]), order["url"])
    there = QueueLocation(Address("chasqui", order["queue"]), order["url"])
    store = Store(order["url"])
    try:
        began = time.perf_counter()
        done = migrate(endpoint_of(store, here), endpoint_of(store, there), move_name(here, there))
        took_s = time.perf_counter() - began
    finally:
        store.close()
    if done.moved != order["count"]:
        raise RuntimeError(f"{done.moved} of {order['count']} were moved")
    return {"rate": order["count"] / took_s}


def redrive(order: Mapping[str, Any]) -> dict[str, float]:
    """Redrive all dead letters of a queue."""
    store, asked = (
        Store(order["url"]),
        dead.RedriveOptions(condition="reason = 'retries_exhausted'"),
    )
    try:
        dlq = DeadLetterQueues(store, order["url"]).of(Address("chasqui", order["queue"]))
        began = time.perf_counter()
        planned = dead.plan(dlq, spark, asked)
        chosen = time.perf_counter()
        done = dead.run(dlq, planned, asked, lambda _: None)
        ended = time.perf_counter()
    finally:
        store.close()
    if done.moved != order["count"]:
        raise RuntimeError(f"{done.moved} of {order['count']} were moved")
    return {"rate": done.moved / (ended - began), "moved": done.moved / (ended - chosen)}


if __name__ == "__main__":
    play({"about": about, "lake": lake, "migrate": move, "redrive": redrive})
