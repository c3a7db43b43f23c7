"""Redrives while a real worker is there: it runs what goes ahead, and its failures are seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from tambomq.chasqui import Job, UnrecoverableError, Worker
from tambomq.chasqui.ops import Policy
from tambomq.pipeline import redrive
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.picks import Pick
from tambomq.pipeline.redrive import Order, Outcome, Planned
from tambomq.store.redrives import DONE, STOPPED, Redrive
from tambomq.store.sync import Store
from tests.pipeline.dying_letters import bury, dead, ids
from tests.servers import Server, eventually_async

COUNT = 40


@asynccontextmanager
async def working(url: str, handler: Callable[[Job], Any]) -> AsyncIterator[None]:
    worker = Worker("orders", handler, redis_url=url)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.close()
        await running


async def run(server: Server) -> Outcome:
    """Redrive all letters, a tenth of them ahead."""
    store = Store(server.url)
    try:
        grave = ChasquiGrave(store, server.url, "orders", Policy())
        picks = [Pick(letter.id) for letter in grave.letters()]
        told = Redrive("r", until=grave.until(), selected=COUNT, canary=4)
        planned = Planned(told, picks, is_known=False)
        return await asyncio.to_thread(redrive.run, grave, planned, Order(canary=0.1))
    finally:
        store.close()


async def test_what_a_worker_can_do_by_now_is_done(server: Server, db: redis.Redis) -> None:
    bury(db, COUNT)
    ran: list[str] = []

    async def mended(job: Job) -> None:
        ran.append(job.id)

    async with working(server.url, mended):
        done = await run(server)
        assert (done.state, done.moved, done.fates) == (DONE, COUNT, {"done": 4})
        await eventually_async(lambda: len(ran) == COUNT, within_s=30)
    assert sorted(ran) == sorted(f"job-{n}" for n in range(COUNT))
    assert dead(db) == []


async def test_what_a_worker_still_cannot_do_stops_the_others(
    server: Server, db: redis.Redis
) -> None:
    bury(db, COUNT)

    async def broken(job: Job) -> None:
        raise UnrecoverableError("still broken")

    async with working(server.url, broken):
        done = await run(server)
    assert (done.state, done.moved, done.fates) == (STOPPED, 4, {"died": 4})
    assert sorted(ids(dead(db))) == sorted(f"job-{n}" for n in range(COUNT))
