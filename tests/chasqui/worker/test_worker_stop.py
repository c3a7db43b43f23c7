"""Stopping a worker: running jobs finish, queued ones are released, nothing is left behind."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import GatedHandler, Process, completed, consumers, pending
from tests.servers import Server, eventually, eventually_async

server = working.server


@pytest.fixture
def make(server: Server, keys: Keys) -> Any:
    """A function from a handler and options to a worker that does not run yet."""

    def make_one(handler: Any, **options: Any) -> Worker:
        return Worker(keys.queue, handler, **{"redis_url": server.url, **options})

    return make_one


async def nothing(_: Job) -> None:
    pass


async def test_close_ends_a_blocked_read_at_once_and_leaves_nothing(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    worker = make(nothing, read_block_ms=200_000)
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: db.info("clients")["blocked_clients"] == 1)
    await worker.close()
    await asyncio.wait_for(running, 60)
    assert (pending(db, keys), consumers(db, keys)) == ({}, [])
    # No pending read of the stopped worker takes later jobs.
    await queue.add("job", None)
    assert (await queue.get_job_counts()).waiting == 1


async def test_close_finishes_what_runs_and_takes_nothing_more(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    worker = make(held, concurrency=2)
    running = asyncio.create_task(worker.run())
    await held.holds(2)
    await worker.close()
    await eventually_async(worker._fetcher._stopped.is_set)
    assert not running.done()
    held.go.set()
    await asyncio.wait_for(running, 60)
    assert sorted(held.ended) == [0, 1]
    assert (worker.stats.received, worker.stats.completed) == (2, 2)
    assert (db.xlen(keys.stream), pending(db, keys), consumers(db, keys)) == (8, {}, [])


async def test_queued_jobs_are_given_back_and_run_at_once_by_another_worker(
    queue: Queue, make: Any, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held, other = GatedHandler(quick=500), GatedHandler(quick=1000)
    await queue.add_bulk([{"name": "job", "data": n} for n in range(1000)])
    worker = make(held, concurrency=2)
    running = asyncio.create_task(worker.run())
    await held.holds(502)
    await worker.close()
    await eventually_async(lambda: worker.stats.returned, within_s=10)
    assert not running.done()
    held.go.set()
    await running
    assert worker.stats.completed == 502
    assert {count for _, count in pending(db, keys).values()} <= {0}
    async with work(other) as second:
        await completed(second, 498)
    assert sorted(held.ended + other.ended) == list(range(1000))


@pytest.mark.parametrize("how", ["grace", "cancel"])
async def test_a_job_that_does_not_end_is_cancelled_and_given_back(
    queue: Queue, make: Any, work: Work, db: redis.Redis, keys: Keys, how: str
) -> None:
    held, other = GatedHandler(), GatedHandler(quick=1)
    await queue.add("job", "endless")
    worker = make(held, grace_s=0.05)
    running = asyncio.create_task(worker.run())
    await held.holds(1)
    if how == "grace":
        await worker.close()
    else:
        running.cancel()
    await asyncio.wait([running], timeout=60)
    assert running.cancelled() is (how == "cancel")
    assert (held.cancelled, worker.stats.returned, worker.stats.failed) == (["endless"], 1, 0)
    assert [count for _, count in pending(db, keys).values()] == [0]
    async with work(other) as second:
        await completed(second, 1)
    assert other.ended == ["endless"]


@pytest.mark.parametrize("how", ["grace", "cancel"])
async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_worker(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys, how: str
) -> None:
    started = asyncio.Event()

    async def swallow(_: Job) -> None:
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    await queue.add_bulk([{"name": "job", "data": n} for n in range(3)])
    worker = make(swallow, grace_s=0.05, concurrency=1)
    running = asyncio.create_task(worker.run())
    await started.wait()
    if how == "grace":
        await worker.close()
    else:
        running.cancel()
    done, _ = await asyncio.wait([running], timeout=60)
    assert done == {running}
    # It returned, so its job is done. The others are for the next worker.
    assert worker.stats.completed == 1
    assert db.xlen(keys.stream) == 2
    assert {count for _, count in pending(db, keys).values()} <= {0}


async def test_a_cancelled_run_gives_back_what_is_queued_too(
    queue: Queue, make: Any, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler(quick=500)
    await queue.add_bulk([{"name": "job", "data": n} for n in range(1000)])
    worker = make(held, concurrency=2)
    running = asyncio.create_task(worker.run())
    await held.holds(502)
    running.cancel()
    await asyncio.wait([running], timeout=60)
    assert {count for _, count in pending(db, keys).values()} == {0}
    async with work(nothing) as second:
        await completed(second, 500)
    assert db.xlen(keys.stream) == 0


@pytest.mark.parametrize("how", ["grace", "cancel"])
async def test_a_thread_that_does_not_end_keeps_its_job_for_its_time(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys, how: str
) -> None:
    begun, finish = threading.Event(), threading.Event()

    def handler(_: Job) -> None:
        begun.set()
        finish.wait(200)

    await queue.add("job", "endless")
    worker = make(handler, grace_s=0.05, consumer_id="me")
    running = asyncio.create_task(worker.run())
    await eventually_async(begun.is_set)
    if how == "grace":
        await worker.close()
    else:
        running.cancel()
    await asyncio.wait([running], timeout=60)
    # It still runs, so no other worker may run it now.
    assert list(pending(db, keys).values()) == [("me", 1)]
    assert consumers(db, keys) == ["me"]
    finish.set()


async def test_finished_jobs_are_settled_even_if_run_is_cancelled(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler(quick=1)
    await queue.add_bulk([{"name": "job", "data": n} for n in ("quick", "endless")])
    worker = make(held, concurrency=1)
    running = asyncio.create_task(worker.run())
    await held.holds(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (worker.stats.completed, worker.stats.returned) == (1, 1)
    assert db.xlen(keys.stream) == 1


async def test_a_worker_closed_before_it_runs_does_nothing(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    await queue.add("job", None)
    worker = make(nothing)
    await worker.close()
    await asyncio.wait_for(worker.run(), 60)
    assert (worker.is_closed, worker.is_running, worker.stats.received) == (True, False, 0)
    assert db.xinfo_groups(keys.stream) == []


async def test_a_worker_closed_while_it_starts_ends(queue: Queue, make: Any) -> None:
    for turns in range(12):
        worker = make(nothing)
        running = asyncio.create_task(worker.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        await worker.close()
        await asyncio.wait_for(running, 60)


async def test_running_twice_is_running_once(queue: Queue, make: Any) -> None:
    worker = make(nothing)
    both = [asyncio.create_task(worker.run()) for _ in range(2)]
    await queue.add_bulk([{"name": "job", "data": None}] * 5)
    await completed(worker, 5)
    await worker.close()
    await asyncio.wait_for(asyncio.gather(*both), 60)
    assert worker.stats.received == 5
    # The worker has ended, so a third call returns at once.
    await asyncio.wait_for(worker.run(), 60)


async def test_closing_twice_and_from_another_thread_is_closing_once(
    queue: Queue, make: Any
) -> None:
    worker = make(nothing)
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: worker._fetcher is not None)
    await asyncio.to_thread(lambda: asyncio.run(worker.close()))
    await worker.close()
    await asyncio.wait_for(running, 60)
    await worker.close()


async def test_leaving_the_async_with_block_closes_the_worker(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add("job", "last")
    async with make(held) as worker:
        running = asyncio.create_task(worker.run())
        await held.holds(1)
        asyncio.get_running_loop().call_later(0.05, held.go.set)
    assert running.done() or not worker.is_running
    assert (held.ended, consumers(db, keys)) == (["last"], [])
    await running


async def test_leaving_the_block_closes_a_worker_that_never_ran(make: Any) -> None:
    async with make(nothing) as worker:
        pass
    assert worker.is_closed


async def test_a_worker_that_ends_releases_its_leader_locks(
    queue: Queue, make: Any, db: redis.Redis, keys: Keys
) -> None:
    worker = make(nothing)
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: db.exists(keys.promoter_lock, keys.scheduler_lock) == 2)
    await worker.close()
    await running
    assert db.exists(keys.promoter_lock, keys.scheduler_lock) == 0


async def test_no_connection_and_no_thread_outlives_a_worker(make: Any, db: redis.Redis) -> None:
    def clients() -> Any:
        return db.info("clients")["connected_clients"]

    await eventually_async(lambda: clients() == 1)
    threads = set(threading.enumerate())
    worker = make(lambda _: None)
    running = asyncio.create_task(worker.run())
    await eventually_async(lambda: clients() > 1)
    await worker.close()
    await running
    await eventually_async(lambda: clients() == 1)
    # The threads that asyncio keeps for `to_thread` may stay.
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not [name for name in left if not name.startswith("asyncio_")]


# ── signals ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_end(
    server: Server, db: redis.Redis, keys: Keys, number: signal.Signals
) -> None:
    db.xadd(keys.stream, {"d": b"\x94\xa1a\xc4\x01\x07\x01\x00"})
    with Process(server.url, keys.queue) as process:
        eventually(lambda: db.llen("begun") == 1, within_s=20)
        process.send_signal(number)
        # It reads no more, so its job may go on.
        eventually(lambda: db.info("clients")["blocked_clients"] == 0)
        db.set("go", 1)
        assert process.wait(120) == 0
    assert db.lrange("ended", 0, -1) == [b"7"]
    assert (db.xlen(keys.stream), consumers(db, keys)) == (0, [])


def test_a_second_signal_gives_the_running_job_back(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    db.xadd(keys.stream, {"d": b"\x94\xa1a\xc4\x01\x07\x01\x00"})
    with Process(server.url, keys.queue) as process:
        eventually(lambda: db.llen("begun") == 1, within_s=20)
        eventually(lambda: db.info("clients")["blocked_clients"] == 1)
        process.terminate()
        eventually(lambda: db.info("clients")["blocked_clients"] == 0)
        process.terminate()
        assert process.wait(120) == 0
    assert db.llen("ended") == 0
    ((entry, (_, count)),) = pending(db, keys).items()
    assert count == 0
    assert db.xpending_range(keys.stream, GROUP, entry, entry, 1, idle=30_000)
