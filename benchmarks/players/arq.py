"""arq with its defaults but for `max_jobs`, which is as high as ours, and results, not kept.

Runs in the environment of tests/peers/arq. The worker imports this file too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from arq import create_pool  # type: ignore[import-not-found]
from arq.connections import RedisSettings  # type: ignore[import-not-found]

from benchmarks.players import tally
from benchmarks.players.talk import play

MAX_JOBS = 100


async def job(_context: object, **_data: object) -> None:
    """Count a run."""
    _count()


if tally.URL in os.environ:
    _count = tally.counter()

    class WorkerSettings:
        """What the command ``arq`` reads."""

        functions = (job,)
        redis_settings = RedisSettings.from_dsn(os.environ[tally.URL])
        queue_name = os.environ[tally.QUEUE]
        max_jobs = MAX_JOBS
        keep_result = 0


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    return {"version": f"arq {version('arq')} (redis-py {version('redis')})"}


def add(order: Mapping[str, Any]) -> dict[str, float]:
    """Add jobs one by one."""
    return asyncio.run(_add(order))


async def _add(order: Mapping[str, Any]) -> dict[str, float]:
    pool = await create_pool(
        RedisSettings.from_dsn(order["url"]), default_queue_name=order["queue"]
    )
    try:
        await _enqueue(pool, order["data"], order["warm"])
        began = time.perf_counter()
        await _enqueue(pool, order["data"], order["count"])
        return {"rate": order["count"] / (time.perf_counter() - began)}
    finally:
        await pool.aclose()


async def _enqueue(pool: Any, data: Mapping[str, Any], count: int) -> None:
    for _ in range(count):
        await pool.enqueue_job("job", **data)


def drain(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure the worker on a filled queue."""
    add({**order, "warm": 0, "count": order["warm"] + order["count"]})
    return tally.drained([tally.beside("arq"), f"{__spec__.name}.WorkerSettings"], order)


if __name__ == "__main__":
    play({"about": about, "add": add, "drain": drain})
