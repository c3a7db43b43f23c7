"""Runs of typed jobs that race their time-out and their cancellation: each has one outcome."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import Keys
from tambomq.errors import JobCancelled, JobFailed
from tambomq.jobs import JobHandle, Jobs
from tests.chasqui.working import emitted_events
from tests.jobs.conftest import Work
from tests.runtime.test_observer import Recorder
from tests.servers import Server, eventually_async

ENDS = {"completed": "completed", "dlq": "dead", "cancelled": "cancelled"}
"""The outcome that an observer sees, for each event that ends a job."""


async def outcome(job: JobHandle[Any]) -> str:
    """How the job ended, as whoever waits for its result sees it."""
    try:
        result = await job.result(timeout_s=60)
    except JobCancelled:
        return "cancelled"
    except JobFailed as error:
        return "dead" if "took longer than timeout_s" in str(error) else f"dead: {error}"
    return "completed" if result == 1 else f"completed: {result}"


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_a_run_that_races_its_time_out_and_its_cancellation_has_one_outcome(
    jobs: Jobs, work: Work, server: Server, kind: str
) -> None:
    draw, recorder = random.Random(kind), Recorder()
    limit_s = 0.05

    async def wait(s: float) -> int:
        await asyncio.sleep(s)
        return 1

    def block(s: float) -> int:
        time.sleep(s)
        return 1

    run = jobs.job(name="run", timeout_s=limit_s, attempts=1)(
        wait if kind == "coroutine" else block
    )
    async with work(jobs, concurrency=20, observer=recorder) as worker:
        around = [limit_s + draw.uniform(-0.004, 0.004) for _ in range(60)]
        added = await jobs.add_many([run.call(s) for s in around])
        loop = asyncio.get_running_loop()
        cancelling = [
            loop.create_task(cancel_later(job, limit_s + draw.uniform(-0.01, 0.01)))
            for job in added[::3]
        ]
        seen = {job.id: await outcome(job) for job in added}
        taken = {job for job in await asyncio.gather(*cancelling) if job}
        await eventually_async(lambda: worker.in_flight == 0)
    with redis.Redis.from_url(server.url) as db:
        events = [(e["id"], ENDS[e["e"]]) for e in emitted_events(db, Keys(jobs.queue_name), *ENDS)]
    assert Counter(id for id, _ in events) == Counter(seen.keys())
    assert dict(events) == seen
    assert {id for id, end in events if end == "cancelled"} == taken
    observed = {each.id: each.outcome for each in recorder.ended}
    assert len(recorder.ended) == len(observed)
    # A job that was cancelled before a worker read it has no run.
    assert observed == {id: seen[id] for id in observed}
    assert {id for id in seen if id not in observed} <= taken


async def cancel_later(job: JobHandle[Any], after_s: float) -> str:
    await asyncio.sleep(after_s)
    return job.id if await job.cancel("race") else ""
