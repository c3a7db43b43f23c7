"""A paused queue starts no job; running jobs go on."""

from __future__ import annotations

from typing import Any

import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import Keys
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import GatedHandler, completed, die_with, pending
from tests.servers import eventually_async

server = working.server


async def nothing(_: Job) -> None:
    pass


async def noticed(worker: Worker, *, paused: bool = True) -> None:
    """Return when *worker* has noticed that the queue is paused, or is not."""
    await eventually_async(lambda: worker._fetcher and worker._fetcher._paused is paused)


async def polled_again(db: redis.Redis, times: int = 3) -> None:
    """Return when workers have polled the pause key *times* more times."""

    def polls() -> int:
        stats: Any = db.info("commandstats")
        return int(stats.get("cmdstat_exists", {"calls": 0})["calls"])

    goal = polls() + times
    await eventually_async(lambda: polls() >= goal)


async def test_a_paused_queue_starts_no_job_until_it_is_resumed(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    async with work(nothing) as worker:
        await queue.add("job", None)
        await completed(worker, 1)
        await queue.pause()
        await noticed(worker)
        await queue.add_bulk([{"name": "job", "data": None}] * 5)
        await polled_again(db)
        assert worker.stats.received == 1
        counts = await queue.get_job_counts()
        assert (counts.paused, counts.waiting, counts.active) == (True, 5, 0)
        assert await queue.resume()
        await completed(worker, 6)


async def test_a_worker_that_starts_on_a_paused_queue_starts_nothing(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": None}] * 5)
    die_with(db, keys, 1, ago_ms=60_000)
    await queue.pause()
    async with work(nothing) as worker:
        await noticed(worker)
        await polled_again(db)
        assert worker.stats.received == 0
        await queue.resume()
        await completed(worker, 5)


async def test_running_jobs_finish_during_a_pause_and_no_others_start(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    held = GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(4)])
    async with work(held, concurrency=2) as worker:
        await held.holds(2)
        await queue.pause()
        await noticed(worker)
        held.go.set()
        await completed(worker, 2)
        await polled_again(db)
        assert held.begun == [0, 1]
        await queue.resume()
        await completed(worker, 4)


async def test_jobs_read_before_a_pause_wait_and_keep_their_leases(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler(quick=300)
    await queue.add_bulk([{"name": "job", "data": n} for n in range(600)])
    async with work(held, concurrency=2, claim_min_idle_ms=300) as worker:
        await held.holds(302)
        await queue.pause()
        await noticed(worker)
        held.go.set()
        await completed(worker, 302)
        await polled_again(db)
        assert len(held.begun) == 302
        await queue.resume()
        await completed(worker, 600)
    assert sorted(held.ended) == list(range(600))


async def test_a_worker_can_be_closed_while_the_queue_is_paused(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add("job", None)
    await queue.pause()
    async with work(nothing) as worker:
        await noticed(worker)
    assert (worker.stats.received, pending(db, keys), db.xlen(keys.stream)) == (0, {}, 1)


async def test_all_workers_pause(queue: Queue, work: Work, db: redis.Redis) -> None:
    async with work(nothing) as first, work(nothing) as second:
        await queue.pause()
        await noticed(first)
        await noticed(second)
        await queue.add_bulk([{"name": "job", "data": None}] * 4)
        await polled_again(db)
        assert first.stats.received + second.stats.received == 0
        await queue.resume()
        await eventually_async(lambda: first.stats.completed + second.stats.completed == 4)


async def test_delayed_jobs_become_due_but_do_not_start(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    async with work(nothing) as worker:
        await queue.pause()
        await noticed(worker)
        await queue.add("job", None, delay_ms=20)
        await eventually_async(lambda: _waits(queue))
        assert worker.stats.received == 0
        await queue.resume()
        await completed(worker, 1)


async def _waits(queue: Queue) -> bool:
    counts = await queue.get_job_counts()
    return (counts.waiting, counts.delayed) == (1, 0)


async def test_repeated_pauses_end_with_one_resume(queue: Queue, work: Work) -> None:
    await queue.pause()
    await queue.pause()
    assert await queue.is_paused()
    assert await queue.resume()
    assert not await queue.resume()
    await queue.add("job", None)
    async with work(nothing) as worker:
        await completed(worker, 1)


async def test_a_queue_that_is_resumed_while_a_worker_stops_starts_no_job_of_it(
    queue: Queue, work: Work
) -> None:
    held = GatedHandler()
    async with work(held, concurrency=1) as worker:
        await queue.add("job", "runs")
        await held.holds(1)
        fetcher = worker._fetcher
        assert fetcher is not None
        await queue.pause()
        await eventually_async(lambda: fetcher._paused)
        fetcher.stop()
        await queue.resume()
        await fetcher._check_paused()
        assert not fetcher._paused
        assert fetcher._pool._paused
        held.go.set()
