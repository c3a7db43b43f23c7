"""The blocking queue: behaviour that only it has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job
from tambomq.chasqui.keys import Keys
from tambomq.errors import JobFailed
from tests.chasqui.conftest import Work
from tests.chasqui.stored import has_event_reader, ids
from tests.servers import Server, eventually_async


def test_leaving_the_block_closes_the_queue(server: Server) -> None:
    with BlockingQueue("q", redis_url=server.url) as queue:
        queue.add("n", 1)
        assert not queue.is_closed
    assert queue.is_closed


def test_any_number_of_threads_share_a_queue(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    with ThreadPoolExecutor(8) as pool:
        added = list(pool.map(lambda place: blocking.add("n", place).id, range(200)))
    assert sorted(ids(db, keys)) == sorted(added)


def test_a_keyed_job_is_added_once_by_many_threads(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: blocking.add("n", 1, job_id="a"), range(40)))
        list(pool.map(lambda _: blocking.add("n", 1, job_id="b", delay_ms=60_000), range(40)))
    assert ids(db, keys) == ["a"]
    assert db.zcard(keys.delayed) == 1


def test_a_forked_child_uses_connections_of_its_own(
    blocking: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    blocking.add("parent", 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            blocking.add_bulk([{"name": "child", "data": place} for place in range(50)])
            status = 0
        finally:
            os._exit(status)
    for place in range(50):
        blocking.add("parent", place)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert db.xlen(keys.stream) == 101


def test_a_blocking_queue_brings_no_asyncio_with_it() -> None:
    code = "import sys, tambomq.chasqui; sys.exit('asyncio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_a_thread_waits_for_a_result_that_a_worker_makes(
    blocking: BlockingQueue, work: Work
) -> None:
    async def double(job: Job) -> Any:
        return job.data * 2

    job = blocking.add("n", 21)
    waiting = asyncio.to_thread(job.wait_for_result, timeout=60)
    async with work(double, store_results=True):
        assert await waiting == 42
    assert blocking.get_job_result(job.id) == 42


async def test_waiting_in_a_thread_for_a_dead_job_raises(
    blocking: BlockingQueue, work: Work, db: redis.Redis
) -> None:
    async def fail(job: Job) -> None:
        raise ValueError("boom")

    job = blocking.add("n", 1, attempts=1)
    waiting = asyncio.create_task(asyncio.to_thread(blocking.wait_for_result, job.id, timeout=60))
    await eventually_async(lambda: has_event_reader(db))
    async with work(fail):
        with pytest.raises(JobFailed, match="retries_exhausted") as caught:
            await waiting
    assert caught.value.id == job.id


async def test_a_thread_gives_up_waiting_in_time(blocking: BlockingQueue) -> None:
    with pytest.raises(TimeoutError, match=r"no result of job 'none' within 0\.05 s"):
        await asyncio.to_thread(blocking.wait_for_result, "none", timeout=0.05)


async def test_a_thread_gets_none_of_a_handler_that_returns_nothing(
    blocking: BlockingQueue, work: Work, db: redis.Redis
) -> None:
    async def nothing(job: Job) -> None:
        return None

    job = blocking.add("n", 1)
    waiting = asyncio.create_task(asyncio.to_thread(job.wait_for_result, timeout=60))
    await eventually_async(lambda: has_event_reader(db))
    async with work(nothing, store_results=True):
        assert await waiting is None
