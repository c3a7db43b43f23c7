"""A job stays with the worker that runs it, as long as that worker lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, Worker
from tambomq.chasqui.keys import GROUP, Keys
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.conftest import working as at_work
from tests.chasqui.working import (
    GatedHandler,
    Process,
    completed,
    die_with,
    emitted_events,
    pending,
)
from tests.servers import Server, eventually, eventually_async

server = working.server

IDLE_MS = 900
LONG_MS = 2500
"""A lease that is kept also where others leave a worker no core for a second or two."""


class Stolen(Exception):
    pass


def server_ms(db: redis.Redis) -> int:
    seconds, micros = db.time()
    return int(seconds) * 1000 + int(micros) // 1000


def withstand(db: redis.Redis, keys: Keys, times: float = 1.2) -> None:
    """Return after so many leases; raise `Stolen` if another worker could claim the job."""
    until = server_ms(db) + times * LONG_MS

    def over() -> bool:
        if db.xautoclaim(keys.stream, GROUP, "thief", LONG_MS, justid=True):
            raise Stolen
        return server_ms(db) > until

    eventually(over, within_s=100)


@pytest.mark.slow
async def test_a_job_of_twelve_leases_runs_once_also_if_it_blocks_the_loop(
    open_queue: OpenQueue, db: redis.Redis, keys: Keys, server: Server
) -> None:
    begun: list[str] = []

    async def waits(_: Job) -> None:
        begun.append("waits")
        await asyncio.to_thread(withstand, db, places[0], 12)

    def plain(_: Job) -> None:
        begun.append("plain")
        withstand(db, places[1], 12)

    async def blocks(_: Job) -> None:
        withstand(db, places[2], 12)

    # At the same time, each on its own queue.
    places = [Keys(f"{keys.queue}-{n}") for n in range(3)]
    workers = [
        Worker(place.queue, handler, redis_url=server.url, claim_min_idle_ms=LONG_MS)
        for place, handler in zip(places, (waits, plain, blocks), strict=True)
    ]

    def over() -> bool:
        return all(worker.stats.completed + worker.stats.failed for worker in workers)

    async with at_work(workers[0]), at_work(workers[1]), at_work(workers[2]):
        for place in places[:2]:
            await open_queue(place.queue).add("job", None)
        await eventually_async(lambda: len(begun) == 2)
        await open_queue(places[2].queue).add("job", None)
        await eventually_async(over, within_s=100)
    for place, worker in zip(places, workers, strict=True):
        assert (worker.stats.received, worker.stats.completed, worker.stats.lost) == (1, 1, 0)
        assert len(emitted_events(db, place, "active")) == 1


def renewal(db: redis.Redis, keys: Keys) -> Callable[[], bool]:
    """Whether the one entry that is held was renewed since this was first asked."""
    longest_ms = 0

    def seen() -> bool:
        nonlocal longest_ms
        rows: Any = db.xpending_range(keys.stream, GROUP, "-", "+", 1)
        silent_ms = rows[0]["time_since_delivered"]
        longest_ms = max(longest_ms, silent_ms)
        return bool(silent_ms < longest_ms)

    return seen


@pytest.mark.slow
def test_a_heartbeat_process_renews_while_a_handler_holds_the_interpreter(
    server: Server, db: redis.Redis, keys: Keys
) -> None:
    warm_up, heavy = (b"\x94\xa1a\xc4\x01" + data + b"\x01\x00" for data in (b"\x00", b"\x07"))
    db.xadd(keys.stream, {"d": warm_up})
    options = {"heartbeat": "process", "claim_min_idle_ms": LONG_MS, "concurrency": 1}
    with Process(server.url, keys.queue, hold_s=4, **options) as worker:
        # The process that renews takes longer to start than this lease lasts.
        eventually(lambda: db.llen("begun") == 1, within_s=20)
        eventually(renewal(db, keys), within_s=20)
        db.set("go", 1)
        eventually(lambda: not pending(db, keys))
        db.xadd(keys.stream, {"d": heavy})
        eventually(lambda: db.llen("begun") == 2, within_s=20)
        withstand(db, keys, times=2)
        eventually(lambda: db.llen("ended") == 2 and not pending(db, keys))
        worker.terminate()
        assert worker.wait(120) == 0
    assert db.lrange("begun", 0, -1) == [b"0", b"7"]


async def test_a_heartbeat_process_renews_while_a_handler_blocks_the_loop(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(job: Job) -> None:
        if job.data == "warm-up":
            await eventually_async(renewal(db, keys), within_s=20)
        else:
            withstand(db, keys)

    await queue.add_bulk([{"name": "job", "data": data} for data in ("warm-up", "heavy")])
    options = {"heartbeat": "process", "claim_min_idle_ms": LONG_MS, "concurrency": 1}
    async with work(handler, **options) as worker:
        await completed(worker, 2)
    assert (worker.stats.received, worker.stats.failed) == (2, 0)


async def test_renewals_do_not_count_as_deliveries(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    counts: list[int] = []

    async def handler(_: Job) -> None:
        await asyncio.to_thread(withstand, db, keys)
        counts.extend(count for _, count in pending(db, keys).values())

    await queue.add("job", None)
    async with work(handler, claim_min_idle_ms=LONG_MS) as worker:
        await completed(worker, 1)
    assert counts == [1]


async def test_a_job_without_a_heartbeat_is_taken_over_and_ends_once(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    slow, quick = GatedHandler(), GatedHandler(quick=1)
    await queue.add("job", "contested")
    options: dict[str, Any] = {"claim_min_idle_ms": IDLE_MS, "concurrency": 1}
    async with work(slow, heartbeat=None, **options) as first:
        await slow.holds(1)
        async with work(quick, **options) as second:
            await completed(second, 1)
        slow.go.set()
        await eventually_async(lambda: first.stats.lost == 1)
    assert first.stats.completed == 0
    assert slow.ended == quick.ended == ["contested"]
    assert len(emitted_events(db, keys, "completed")) == 1


# ── dead workers ─────────────────────────────────────────────────────────────


async def test_a_dead_workers_job_is_taken_over_and_its_run_still_counts_as_the_first(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    seen: list[tuple[int, dict[str, tuple[str, int]]]] = []

    async def handler(job: Job) -> None:
        seen.append((job.attempt, pending(db, keys)))

    await queue.add("job", None)
    (entry,) = die_with(db, keys)
    options = {"consumer_id": "heir", "claim_min_idle_ms": IDLE_MS}
    async with work(handler, **options) as worker:
        # One second more than the lease, and what a busy machine needs.
        await eventually_async(lambda: worker.stats.completed == 1, within_s=IDLE_MS / 1000 + 3)
    assert seen == [(1, {entry: ("heir", 2)})]


async def test_a_worker_that_waits_for_new_jobs_notices_a_dead_one(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler(quick=1)
    await queue.add("job", "orphan")
    # It dies just before its lease would be over, and the other waits for new jobs already.
    die_with(db, keys)
    async with work(held, claim_min_idle_ms=LONG_MS, read_block_ms=20_000) as worker:
        await eventually_async(lambda: db.info("clients")["blocked_clients"])
        assert held.begun == []
        await completed(worker, 1)
    assert held.begun == ["orphan"]


async def test_jobs_of_dead_workers_are_claimed_as_runners_become_free(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(20)])
    die_with(db, keys, 20)
    async with work(held, claim_min_idle_ms=100, concurrency=4, consumer_id="heir") as worker:
        await held.holds(4)
        claimed = [entry for entry, (owner, _) in pending(db, keys).items() if owner == "heir"]
        assert len(claimed) == 4
        held.go.set()
        await completed(worker, 20)
    assert sorted(held.ended) == list(range(20))


async def test_a_busy_worker_claims_jobs_of_dead_workers(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.data)
        await asyncio.sleep(0.002)

    await queue.add("job", "orphan")
    die_with(db, keys, ago_ms=60_000)
    await queue.add_bulk([{"name": "job", "data": "other"}] * 1500)
    async with work(handler, concurrency=2) as worker:
        await completed(worker, 1501)
    # Although there is always something new to be read.
    assert seen.index("orphan") < 1000


async def test_many_jobs_of_dead_workers_are_claimed_without_pauses(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(300)])
    die_with(db, keys, 300, ago_ms=60_000)
    held = GatedHandler(quick=300)
    # One at a time, with one poll a second, would take minutes.
    async with work(held, concurrency=1) as worker:
        await completed(worker, 300)
    assert sorted(held.ended) == list(range(300))


async def test_a_running_job_is_not_claimed_after_its_first_lease(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    first, second = GatedHandler(), GatedHandler()
    await queue.add("job", "mine")
    async with work(first, claim_min_idle_ms=LONG_MS):
        await first.holds(1)
        async with work(second, claim_min_idle_ms=LONG_MS):
            await queue.add("job", "later", delay_ms=LONG_MS + 500)
            # By then the first job has outlived its lease.
            await eventually_async(lambda: len(first.begun) + len(second.begun) == 2)
            assert "mine" not in second.begun
            first.go.set()
            second.go.set()


# ── read ahead ───────────────────────────────────────────────────────────────


async def test_slow_handlers_leave_waiting_jobs_to_other_workers(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    first, second = GatedHandler(), GatedHandler()
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    async with work(first, concurrency=3, consumer_id="first"):
        await first.holds(3)
        assert len(pending(db, keys)) == 3
        async with work(second, concurrency=4, consumer_id="second"):
            await second.holds(4)
            owners = [owner for owner, _ in pending(db, keys).values()]
            assert (owners.count("first"), owners.count("second")) == (3, 4)
            second.go.set()
            await eventually_async(lambda: len(second.ended) == 7)
        first.go.set()
    assert sorted(first.ended + second.ended) == list(range(10))


async def test_prefetched_jobs_are_given_back_when_handlers_become_slow(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    slow, other = GatedHandler(quick=1000), GatedHandler(quick=3000)
    await queue.add_bulk([{"name": "job", "data": n} for n in range(2000)])
    async with work(slow, concurrency=2, consumer_id="slow") as worker:
        await slow.holds(1002)
        await eventually_async(lambda: worker.stats.returned, within_s=20)
        held = pending(db, keys)
        # Two run; the others are as if they had not been delivered.
        assert sorted(count for _, count in held.values())[-3:] == [0, 1, 1]
        # Nobody has to wait until a lease of half a minute is over.
        async with work(other, consumer_id="other") as second:
            await completed(second, 2000 - 1002)
        slow.go.set()
        await completed(worker, 1002)
    assert sorted(slow.ended + other.ended) == list(range(2000))
    assert pending(db, keys) == {}
