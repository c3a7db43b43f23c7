"""Celery as its documentation recommends: prefork, a process for each core, results ignored.

Its guide to optimizing says to prefetch many tasks if they are short: 50 or 150 for a process.
Runs in the environment of tests/peers/celery. The worker imports this file too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from celery import Celery  # type: ignore[import-not-found]

from benchmarks.players import tally
from benchmarks.players.talk import play, rate

PREFETCH = 128


def make(url: str, queue: str) -> Any:
    """Return the application, on *queue*."""
    made = Celery("bench", broker=url, set_as_current=False)
    made.conf.update(
        broker_connection_retry_on_startup=True,
        task_default_queue=queue,
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
    )
    return made


def job(**_data: object) -> None:
    """Count a run."""
    _count()


if tally.URL in os.environ:
    _count = tally.counter()
    app = make(os.environ[tally.URL], os.environ[tally.QUEUE])
    app.task(name="job")(job)


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    return {"version": f"Celery {version('celery')} (redis-py {version('redis')})"}


def add(order: Mapping[str, Any]) -> dict[str, float]:
    """Add jobs one by one."""
    task, data = make(order["url"], order["queue"]).task(name="job")(job), order["data"]
    return rate(lambda: task.delay(**data), order["count"], order["warm"])


def drain(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure the worker on a filled queue."""
    add({**order, "warm": 0, "count": order["warm"] + order["count"]})
    return tally.drained(
        [
            *(tally.beside("celery"), "-A", __spec__.name, "worker", "--loglevel", "WARNING"),
            *("--concurrency", str(order["processes"])),
        ],
        order,
    )


if __name__ == "__main__":
    play({"about": about, "add": add, "drain": drain})
