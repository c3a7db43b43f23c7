"""The rate limit of a queue, shared by all its workers."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.store.sync import Store
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import GatedHandler, completed, emitted_events, pending
from tests.servers import Server, eventually, eventually_async

server = working.server

MINUTE_MS = 60_000
LEASE_MS = 2500
"""Kept also where others leave a worker no core for a while."""


def total(*workers: Worker) -> int:
    return sum(worker.stats.completed for worker in workers)


async def nothing(_: Job) -> None:
    pass


def test_a_window_grants_so_many_and_says_how_long_to_wait(server: Server, keys: Keys) -> None:
    with closing(Store(server.url)) as store:
        ask = [store.run(worker_ops.limit(keys, 5, MINUTE_MS, wanted)) for wanted in (3, 3, 1)]
    assert [allowed for allowed, _ in ask] == [3, 2, 0]
    assert ask[0][1] == 0
    assert all(0 < wait_ms <= MINUTE_MS for _, wait_ms in ask[1:])


def test_a_window_ends(server: Server, keys: Keys, db: redis.Redis) -> None:
    with closing(Store(server.url)) as store:
        assert store.run(worker_ops.limit(keys, 5, 50, 9))[0] == 5
        eventually(lambda: store.run(worker_ops.limit(keys, 5, 50, 5)) == (5, 0))
        eventually(lambda: not db.exists(keys.limiter))


def test_a_window_of_a_longer_limit_does_not_bind_a_shorter_one(server: Server, keys: Keys) -> None:
    with closing(Store(server.url)) as store:
        assert store.run(worker_ops.limit(keys, 1, MINUTE_MS, 1)) == (1, 0)
        assert store.run(worker_ops.limit(keys, 1, 1000, 1)) == (1, 0)


async def test_two_workers_share_one_limit(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(20)])
    limit = {"limiter": (5, MINUTE_MS), "concurrency": 10}
    async with work(nothing, **limit) as first, work(nothing, **limit) as second:
        await eventually_async(lambda: total(first, second) == 5)
        # Each has heard that it has to wait.
        await eventually_async(lambda: len(emitted_events(db, keys, "rate-limited")) >= 2)
        assert total(first, second) == 5
    events = emitted_events(db, keys, "rate-limited")
    assert all(list(event) == ["e", "id", "ts", "wait_ms"] for event in events)
    assert all(event["id"] == "" for event in events)
    assert all(0 < int(event["wait_ms"]) <= MINUTE_MS for event in events)
    assert total(first, second) == 5
    # Jobs that wait for the next window are released.
    assert (db.xlen(keys.stream), first.stats.returned + second.stats.returned) == (15, 15)


async def test_rate_limited_workers_run_all_jobs_in_the_end(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(20)])
    limit = {"limiter": (5, 60), "concurrency": 10}
    async with work(nothing, **limit) as first, work(nothing, **limit) as second:
        await eventually_async(lambda: total(first, second) == 20, within_s=20)
    assert len(emitted_events(db, keys, "completed")) == 20
    assert emitted_events(db, keys, "rate-limited")


async def test_a_limited_worker_ends_at_once_and_another_runs_the_rest(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    async with work(nothing, limiter=(3, MINUTE_MS)) as limited:
        await completed(limited, 3)
        await eventually_async(lambda: emitted_events(db, keys, "rate-limited"))
    assert limited.stats.returned == 7
    async with work(nothing) as other:
        await completed(other, 7)
    assert pending(db, keys) == {}


async def test_a_limited_worker_that_is_cancelled_gives_back_what_it_could_not_run(
    queue: Queue, server: Server, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    worker = Worker(keys.queue, nothing, redis_url=server.url, limiter=(3, MINUTE_MS))
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: emitted_events(db, keys, "rate-limited"))
    await completed(worker, 3)
    running.cancel()
    await asyncio.wait([running])
    assert worker.stats.returned == 7


async def test_a_paused_worker_does_not_ask_the_limiter(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(100)])
    async with work(nothing, limiter=(1, 50), concurrency=10) as limited:
        await eventually_async(lambda: emitted_events(db, keys, "rate-limited"))
        fetcher, turns = limited._fetcher, 0
        assert fetcher is not None
        sleep = fetcher._sleep

        async def counted(for_s: float) -> None:
            nonlocal turns
            await sleep(for_s)
            turns += 1

        monkeypatch.setattr(fetcher, "_sleep", counted)
        await queue.pause()
        await eventually_async(lambda: fetcher._paused)
        # A grant may have been under way when it was paused.
        turns = 0
        await eventually_async(lambda: turns >= 2, within_s=60)
        queued, done = fetcher._pool.queued, limited.stats.completed
        assert queued <= 1
        # Several windows have passed by then.
        await eventually_async(lambda: turns >= 5, within_s=60)
        assert (fetcher._pool.queued, limited.stats.completed) == (queued, done)
        await queue.resume()
        await completed(limited, done + 2)


async def test_jobs_that_wait_for_the_rate_limit_are_not_claimed_by_others(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(4)])
    async with work(nothing, limiter=(2, MINUTE_MS), claim_min_idle_ms=LEASE_MS) as limited:
        await completed(limited, 2)
        await eventually_async(lambda: emitted_events(db, keys, "rate-limited"))
        mine = set(pending(db, keys))
        async with work(held, claim_min_idle_ms=LEASE_MS):
            # Long enough for the other to search for idle entries several times.
            await queue.add("job", "new", delay_ms=LEASE_MS + 500)
            await held.holds(1)
            assert held.begun == ["new"]
            held.go.set()
        assert len(mine) == 2
        assert set(pending(db, keys)) == mine


async def test_a_worker_that_waits_for_the_rate_limit_is_healthy(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.chasqui.worker.fetcher.MAX_SILENCE_S", 0.0)
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    async with work(nothing, limiter=(3, MINUTE_MS), read_block_ms=1) as limited:
        await eventually_async(lambda: emitted_events(db, keys, "rate-limited"))
        last = limited.last_fetch_at
        assert last is not None
        await eventually_async(lambda: time.monotonic() > last + 0.1)
        assert limited.is_consuming
        # While the limiter cannot be asked, there is no such reason.
        db.delete(keys.limiter)
        db.rpush(keys.limiter, "in the way")
        fetcher = limited._fetcher
        assert fetcher is not None
        assert (await fetcher._ask_limiter((3, MINUTE_MS), 1))[0] == 0
        assert not limited.is_consuming
