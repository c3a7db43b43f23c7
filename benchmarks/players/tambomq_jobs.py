"""Typed jobs of TamboMQ: in this process, on uvloop, and by the command ``tambo work``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MethodType, SimpleNamespace
from typing import Any, Self

import uvloop

from benchmarks.players import tally
from benchmarks.players.chasqui_tasks import NAME, Calls, Chasqui
from benchmarks.players.talk import play
from benchmarks.players.tambomq_chasqui import about
from tambomq.chasqui import Queue, Worker
from tambomq.jobs import Jobs

_BATCH = 1000


class TypedQueue:
    """Adds typed jobs where the tasks of ChasquiMQ expect a `Queue`."""

    def __init__(self, queue_name: str, *, redis_url: str, max_stream_len: int) -> None:
        self._jobs = Jobs(queue_name, redis_url=redis_url, max_stream_len=max_stream_len)
        self._function = _define(self._jobs, Calls(0))

    async def add(self, _name: str, data: Mapping[str, Any]) -> object:
        """Add a job, checked by its signature."""
        return await self._function.add(**data)

    async def add_bulk(self, jobs: Any) -> object:
        """Add plain jobs, to fill the queue."""
        return await self._jobs.queue.add_bulk(jobs)

    async def __aenter__(self) -> Self:
        """Return the queue itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._jobs.close()


def typed_worker(queue_name: str, handle: MethodType, *, redis_url: str, **options: Any) -> Worker:
    """Return a worker whose job counts as *handle* does, a method of `Calls`, without calling it.

    A second coroutine for each job would be counted against typed jobs.
    """
    jobs = Jobs(queue_name, redis_url=redis_url)
    calls = handle.__self__
    assert isinstance(calls, Calls)
    _define(jobs, calls)
    return jobs.worker(**options)


def _define(jobs: Jobs, calls: Calls) -> Any:
    @jobs.job
    async def job(order: int, customer: str, items: list[str], note: str, paid: bool) -> None:
        calls.made += 1
        if calls.made == calls.expected:
            data = {"order": order, "customer": customer, "items": items, "note": note}
            calls.last = SimpleNamespace(name=NAME, data={**data, "paid": paid})
            calls.all_made.set()

    return job


def command(order: Mapping[str, Any]) -> dict[str, float]:
    """Measure ``tambo work`` on a filled queue."""
    uvloop.run(_fill(order))
    return tally.drained(
        [
            *(tally.beside("tambo"), "work", "benchmarks.players.jobs_app", "--quiet"),
            *("--processes", str(order["processes"]), "--drain-s", "5"),
        ],
        order,
    )


async def _fill(order: Mapping[str, Any]) -> None:
    total, one = order["warm"] + order["count"], {"name": order["job"], "data": order["data"]}
    async with Queue(order["queue"], redis_url=order["url"], max_stream_len=10_000_000) as queue:
        for first in range(0, total, _BATCH):
            await queue.add_bulk([one] * min(_BATCH, total - first))


if __name__ == "__main__":
    plain, typed = Chasqui(Queue, Worker).tasks, Chasqui(TypedQueue, typed_worker).tasks
    play(
        {
            "about": about,
            "plain drain": plain["drain"],
            "drain": typed["drain"],
            "add": typed["add"],
            "command": command,
        }
    )
