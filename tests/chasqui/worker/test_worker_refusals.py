"""A server that refuses writes for a while stops no worker, and no job runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui.conftest import working
from tests.servers import Server, eventually_async
from tests.servers.refusal import REFUSALS, Refusal, refused, refusing_writes

JOBS = 9


class Ending:
    """A handler whose jobs all end on a signal.

    A third returns, a third returns something to keep, a third is never to be tried again.
    """

    def __init__(self) -> None:
        self.ran: Counter[int] = Counter()
        self.ended = 0
        self.go = asyncio.Event()

    async def __call__(self, job: Job) -> Any:
        self.ran[job.data] += 1
        await self.go.wait()
        self.ended += 1
        if job.data % 3 == 2:
            raise UnrecoverableError("a third")
        return job.data if job.data % 3 else None


async def add_jobs(server: Server, keys: Keys) -> None:
    async with Queue(keys.queue, redis_url=server.url) as queue:
        await queue.add_bulk([{"name": "n", "data": number} for number in range(JOBS)])


def pending(db: redis.Redis, keys: Keys) -> int:
    found: Any = db.xpending(keys.stream, GROUP)
    return int(found["pending"])


@pytest.mark.parametrize("why", REFUSALS)
async def test_jobs_that_end_while_writes_are_refused_are_settled_afterwards(
    private_server: Server, keys: Keys, why: Refusal
) -> None:
    await add_jobs(private_server, keys)
    handler = Ending()
    worker = Worker(keys.queue, handler, redis_url=private_server.url, store_results=True)
    with redis.Redis.from_url(private_server.url) as db:
        async with working(worker):
            await eventually_async(lambda: len(handler.ran) == JOBS, within_s=20)
            with refusing_writes(private_server, why):
                handler.go.set()
                await eventually_async(lambda: handler.ended == JOBS, within_s=20)
                await eventually_async(lambda: refused(private_server, why) > 1, within_s=20)
                assert worker.is_running
                assert pending(db, keys) == JOBS
            await eventually_async(lambda: pending(db, keys) == 0, within_s=30)
        assert db.xlen(keys.dlq) == JOBS // 3
    assert set(handler.ran.values()) == {1}
    assert (worker.stats.completed, worker.stats.buried, worker.stats.lost) == (6, 3, 0)


@pytest.mark.slow
async def test_jobs_run_once_although_writes_are_refused_for_longer_than_the_lease(
    private_server: Server, keys: Keys
) -> None:
    await add_jobs(private_server, keys)
    handler = Ending()
    worker = Worker(keys.queue, handler, redis_url=private_server.url, claim_min_idle_ms=2000)
    with redis.Redis.from_url(private_server.url) as db:
        async with working(worker):
            await eventually_async(lambda: len(handler.ran) == JOBS, within_s=20)
            with refusing_writes(private_server, "MISCONF"):
                handler.go.set()
                # Until each has been idle for long enough to be claimed.
                await eventually_async(lambda: len(idle_for(db, keys, 2500)) == JOBS, within_s=20)
            await eventually_async(lambda: pending(db, keys) == 0, within_s=30)
    assert set(handler.ran.values()) == {1}
    assert (worker.stats.completed, worker.stats.buried, worker.stats.lost) == (6, 3, 0)


async def test_a_worker_that_may_not_settle_some_jobs_settles_the_others_and_says_so(
    private_server: Server, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    await add_jobs(private_server, keys)
    handler, prefix = Ending(), keys.dlq.removesuffix("dlq")
    url = private_server.url.replace("redis://", "redis://w:any@")
    with redis.Redis.from_url(private_server.url) as db:
        db.acl_setuser(*("w", True, True), keys=["*"], channels=["*"], categories=["+@all"])
        worker = Worker(keys.queue, handler, redis_url=url, store_results=True)
        async with working(worker):
            await eventually_async(lambda: len(handler.ran) == JOBS, within_s=20)
            # All keys of the queue but its dead-letter queue.
            db.execute_command(
                "ACL", "SETUSER", "w", "resetkeys", f"~{prefix}[^d]*", f"~{prefix}de*"
            )
            handler.go.set()
            await eventually_async(lambda: worker.stats.completed == 6, within_s=20)
            await eventually_async(lambda: not worker.is_consuming)
            assert pending(db, keys) == JOBS // 3
            assert "refuses to settle" in caplog.text
            db.execute_command("ACL", "SETUSER", "w", "allkeys")
            await eventually_async(lambda: worker.stats.buried == 3, within_s=20)
            await eventually_async(lambda: worker.is_consuming)
    assert set(handler.ran.values()) == {1}
    assert worker.stats.lost == 0


def idle_for(db: redis.Redis, keys: Keys, idle_ms: int) -> list[Any]:
    found: Any = db.xpending_range(keys.stream, GROUP, "-", "+", 100, idle=idle_ms)
    return list(found)
