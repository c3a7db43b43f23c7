"""The fetcher goes on when the group, the stream or the connection is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.working import GatedHandler, completed, pending
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

server = working.server


async def nothing(_: Job) -> None:
    pass


async def blocked(db: redis.Redis, count: int = 1) -> None:
    """Return when so many reads wait on the server."""
    await eventually_async(lambda: db.info("clients")["blocked_clients"] == count)


DELETIONS: dict[str, Callable[[redis.Redis, Keys], Any]] = {
    "DEL": lambda db, keys: db.delete(keys.stream),
    "XGROUP DESTROY": lambda db, keys: db.xgroup_destroy(keys.stream, GROUP),
    "FLUSHALL": lambda db, keys: db.flushall(),
    "RENAME": lambda db, keys: db.rename(keys.stream, keys.stream + ":away"),
}


@pytest.mark.parametrize("how", DELETIONS)
async def test_a_deleted_group_is_created_again(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, how: str
) -> None:
    async with work(nothing) as worker:
        await queue.add("job", None)
        await completed(worker, 1)
        await blocked(db)
        DELETIONS[how](db, keys)
        await queue.add_bulk([{"name": "job", "data": None}] * 3)
        await completed(worker, 4)
    assert pending(db, keys) == {}


async def test_jobs_added_while_there_was_no_group_are_found(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async with work(nothing) as worker:
        await blocked(db)
        with db.pipeline() as pipe:
            pipe.delete(keys.stream)
            for n in range(5):
                pipe.xadd(keys.stream, {"d": b"\x94\xa1a\xc4\x01" + bytes([n]) + b"\x01\x00"})
            pipe.execute()
        await completed(worker, 5)


async def test_what_runs_when_the_stream_is_deleted_is_lost_and_the_worker_goes_on(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add("job", "gone")
    async with work(held) as worker:
        await held.holds(1)
        db.delete(keys.stream)
        held.go.set()
        await eventually_async(lambda: worker.stats.lost == 1)
        await queue.add("job", "new")
        await completed(worker, 1)
    assert held.ended == ["gone", "new"]


async def test_a_stream_of_another_type_is_waited_out(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.stream, "in the way")
    async with work(nothing, delayed_enabled=False, run_scheduler=False) as worker:
        await eventually_async(lambda: worker.is_running)
        db.delete(keys.stream)
        await queue.add("job", None)
        await completed(worker, 1)


# ── connections ──────────────────────────────────────────────────────────────


async def test_what_a_lost_reply_held_is_run_once(
    queue: Queue, work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    seen: list[tuple[Any, int, int]] = []

    async def handler(job: Job) -> None:
        ((_, count),) = pending(db, keys).values()
        seen.append((len(job.data), job.attempt, count))

    with Proxy(server.port) as proxy:
        async with work(handler, redis_url=proxy.url) as worker:
            await blocked(db)
            # Only a read has so long a reply: the job is delivered, and does not arrive.
            proxy.cut("reply", 100_000)
            await queue.add("job", "x" * 300_000)
            # The lease lasts half a minute, so no other worker has claimed it.
            await completed(worker, 1)
    assert seen == [(300_000, 1, 1)]
    assert worker.stats.received == 1


async def test_what_runs_already_is_not_recovered_as_well(
    queue: Queue, work: Work, server: Server, db: redis.Redis
) -> None:
    held = GatedHandler()
    with Proxy(server.port) as proxy:
        async with work(held, redis_url=proxy.url) as worker:
            await queue.add("job", "running")
            await held.holds(1)
            proxy.cut("reply", 100_000)
            await queue.add("job", "x" * 300_000)
            await held.holds(2)
            held.go.set()
            await completed(worker, 2)
    assert worker.stats.received == 2


async def test_a_connection_that_breaks_while_nothing_comes_is_made_again(
    queue: Queue, work: Work, server: Server, db: redis.Redis
) -> None:
    with Proxy(server.port) as proxy:
        async with work(nothing, redis_url=proxy.url) as worker:
            for count in range(1, 4):
                await blocked(db)
                proxy.hang_up()
                await queue.add("job", None)
                await completed(worker, count)


async def test_a_worker_can_be_closed_after_its_connection_has_changed(
    queue: Queue, work: Work, server: Server, db: redis.Redis, keys: Keys
) -> None:
    with Proxy(server.port) as proxy:
        async with work(nothing, redis_url=proxy.url, read_block_ms=20_000) as worker:
            await blocked(db)
            before = worker._fetcher and worker._fetcher._connection
            proxy.hang_up()
            await eventually_async(
                lambda: worker._fetcher and worker._fetcher._connection not in (None, before)
            )
            await blocked(db)
    assert db.xinfo_consumers(keys.stream, GROUP) == []


async def test_a_worker_that_finds_no_server_works_when_there_is_one(
    open_queue: OpenQueue, work: Work, private_server: Server
) -> None:
    private_server.stop()
    async with work(nothing, redis_url=private_server.url) as worker:
        await eventually_async(lambda: worker.is_running)
        private_server.restart()
        await open_queue(redis_url=private_server.url).add("job", None)
        await completed(worker, 1)
