"""On a cluster: jobs are cancelled, debounced and throttled, and fires are skipped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, MissedFiresPolicy, Queue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.worker import cancellations
from tambomq.errors import JobCancelled
from tests.chasqui import test_cluster
from tests.chasqui.conftest import working
from tests.chasqui.leading import LONG_AGO, scheduler, waiting
from tests.chasqui.test_cluster import worker
from tests.servers import eventually_async

url, owner, keys, db, queue = (
    test_cluster.url,
    test_cluster.owner,
    test_cluster.keys,
    test_cluster.db,
    test_cluster.queue,
)
HOUR_S = 3600


async def test_a_job_is_cancelled_wherever_it_is(
    url: str, keys: Keys, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whichever node it is connected to, a worker is notified.
    monkeypatch.setattr(cancellations, "POLL_EVERY_S", 3600)
    started, ended = asyncio.Event(), asyncio.Event()

    async def forever(job: Job) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    late = await queue.add("late", 1, delay_ms=HOUR_S * 1000)
    soon = await queue.add("soon", 1)
    assert [await queue.cancel_job(job.id, "no") for job in (late, soon)] == [True, True]
    async with working(worker(url, keys, forever)) as running:
        job = await queue.add("n", 1)
        await started.wait()
        assert await queue.cancel_job(job.id, "not needed") is True
        with pytest.raises(JobCancelled, match="not needed"):
            await job.wait_for_result(timeout=60)
        await asyncio.wait_for(ended.wait(), 60)
        await eventually_async(lambda: running.stats.cancelled == 1, within_s=60)
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.active, counts.delayed, counts.dead) == (0, 0, 0, 0)


async def test_adds_are_debounced_and_throttled(url: str, keys: Keys, queue: Queue) -> None:
    async def added(**options: Any) -> list[bool | None]:
        return [(await queue.add_unique("n", n, **options)).added for n in range(2)]

    assert await added(job_id="a", debounce_s=HOUR_S) == [True, False]
    assert await added(job_id="b", throttle_s=HOUR_S) == [True, False]
    counts = await queue.get_job_counts()
    assert (counts.waiting, counts.delayed) == (1, 1)


async def test_a_fire_is_skipped_while_the_job_of_the_last_one_waits(
    url: str, keys: Keys, queue: Queue, db: redis.Redis
) -> None:
    await queue.upsert_repeatable_job(
        "tick",
        1,
        repeat=RepeatPattern.every(HOUR_S * 1000),
        job_id="k",
        missed_fires=MissedFiresPolicy.fire_once(),
        unless_queued=True,
    )
    async with scheduler(url, keys) as leader:
        for jobs in (1, 1):
            db.zadd(keys.repeat, {"k": LONG_AGO})
            await leader.turn()
            assert len(waiting(db, keys)) == jobs
    assert await queue.remove_repeatable_by_key("k") is True
    assert not db.exists(keys.unless_queued, keys.previous)
