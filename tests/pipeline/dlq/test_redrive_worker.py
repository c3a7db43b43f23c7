"""Redrives while a real worker is there: it runs what goes ahead, and its failures are seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import redis

from tambomq.bulk.redrives import DONE, STOPPED, Redrive
from tambomq.chasqui import Job, UnrecoverableError, Worker
from tambomq.chasqui.ops.add import Policy
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.redrive import RedriveOptions, RedrivePlan, RedriveResult
from tambomq.pipeline.dlq.selection import Selection
from tambomq.store.sync import Store
from tests.pipeline.dying_letters import add_dead_letters, dead, ids
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


async def run(server: Server) -> RedriveResult:
    """Redrive all letters, a tenth of them ahead."""
    store = Store(server.url)
    try:
        dlq = ChasquiDlq(store, server.url, "orders", Policy())
        selections = [Selection(letter.id) for letter in dlq.letters()]
        started = Redrive("r", until=dlq.until(), selected=COUNT, canary=4)
        planned = RedrivePlan(started, selections, is_known=False)
        return await asyncio.to_thread(redrive.run, dlq, planned, RedriveOptions(canary=0.1))
    finally:
        store.close()


async def test_a_redrive_completes_if_the_canary_succeeds(server: Server, db: redis.Redis) -> None:
    add_dead_letters(db, COUNT)
    ran: list[str] = []

    async def mended(job: Job) -> None:
        ran.append(job.id)

    async with working(server.url, mended):
        done = await run(server)
        assert (done.state, done.moved, done.outcomes) == (DONE, COUNT, {"done": 4})
        await eventually_async(lambda: len(ran) == COUNT, within_s=30)
    assert sorted(ran) == sorted(f"job-{n}" for n in range(COUNT))
    assert dead(db) == []


async def test_a_redrive_stops_if_the_canary_fails(server: Server, db: redis.Redis) -> None:
    add_dead_letters(db, COUNT)

    async def broken(job: Job) -> None:
        raise UnrecoverableError("still broken")

    async with working(server.url, broken):
        done = await run(server)
    assert (done.state, done.moved, done.outcomes) == (STOPPED, 4, {"died": 4})
    assert sorted(ids(dead(db))) == sorted(f"job-{n}" for n in range(COUNT))
