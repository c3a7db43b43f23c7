"""Dramatiq with its defaults: a process for each core, each with eight threads.

Runs in the environment of tests/peers/dramatiq. The worker imports this file too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]

from benchmarks.players import tally
from benchmarks.players.talk import play, rate


def make(url: str, queue: str) -> Any:
    """Return the actor, on *queue*."""
    dramatiq.set_broker(RedisBroker(url=url))
    return dramatiq.actor(job, actor_name="job", queue_name=queue)


def job(**_data: object) -> None:
    """Count a run."""
    _count()


if tally.URL in os.environ:
    _count = tally.counter()
    make(os.environ[tally.URL], os.environ[tally.QUEUE])


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    return {"version": f"Dramatiq {version('dramatiq')} (redis-py {version('redis')})"}


def add(order: Mapping[str, Any]) -> dict[str, float]:
    """Add jobs one by one."""
    actor, data = make(order["url"], order["queue"]), order["data"]
    return rate(lambda: actor.send(**data), order["count"], order["warm"])


def drain(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure the worker on a filled queue."""
    add({**order, "warm": 0, "count": order["warm"] + order["count"]})
    processes = str(order["processes"])
    return tally.drained(
        [tally.beside("dramatiq"), __spec__.name, "--processes", processes, "--threads", "8"],
        order,
    )


if __name__ == "__main__":
    play({"about": about, "add": add, "drain": drain})
