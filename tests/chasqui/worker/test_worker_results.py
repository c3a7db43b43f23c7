"""Results of handlers, stored and awaited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.chasqui import BackoffSpec, BlockingQueue, Job, Queue
from tambomq.chasqui.keys import Keys
from tambomq.errors import JobFailed, Reject
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.working import GatedHandler, buried, completed
from tests.servers import eventually_async

server = working.server

# Polled so rarely that only an event ends the wait in time.
RARELY: dict[str, Any] = {"timeout": 50, "poll_interval": 60}


async def echo(job: Job) -> Any:
    return job.data


@pytest.mark.parametrize(("ttl_ms", "ttl_s"), [(1, 1), (1000, 1), (60_001, 61), (None, 3600)])
async def test_a_result_is_kept_for_its_time(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, ttl_ms: int | None, ttl_s: int
) -> None:
    # A result that expires within a second may be deleted before it is read.
    job = await queue.add("job", "value")
    async with work(echo, store_results=True, result_ttl_ms=ttl_ms) as worker:
        await completed(worker, 1)
        left_ms = db.pttl(keys.result(job.id))
    assert isinstance(left_ms, int)
    assert left_ms <= ttl_s * 1000
    assert left_ms > ttl_s * 1000 - 30_000


async def test_results_are_asked_for_in_bulk(queue: Queue, work: Work) -> None:
    jobs = await queue.add_bulk([{"name": "job", "data": n} for n in (1, 0, None, "x")])
    async with work(echo, store_results=True) as worker:
        await completed(worker, 4)
    ids = [job.id for job in jobs]
    assert await queue.get_job_result_bulk([*ids, "unknown"]) == [1, 0, None, "x", None]
    assert await queue.get_job_result_bulk([]) == []


async def test_an_event_ends_the_wait_for_a_result(queue: Queue, work: Work) -> None:
    async with work(echo, store_results=True):
        job = await queue.add("job", {"sum": 42}, delay_ms=50)
        assert await job.wait_for_result(**RARELY) == {"sum": 42}


async def test_a_result_that_is_there_already_is_returned_at_once(queue: Queue, work: Work) -> None:
    job = await queue.add("job", "value")
    async with work(echo, store_results=True) as worker:
        await completed(worker, 1)
    assert await job.wait_for_result(**RARELY) == "value"
    assert await queue.wait_for_result(job.id, **RARELY) == "value"


async def test_many_wait_each_for_their_own_on_one_connection(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    jobs = await queue.add_bulk([{"name": "job", "data": n} for n in range(200)])
    waits = [asyncio.ensure_future(job.wait_for_result(**RARELY)) for job in jobs]
    # Two may wait for the same.
    waits += [asyncio.ensure_future(job.wait_for_result(**RARELY)) for job in jobs]
    await eventually_async(lambda: db.info("clients")["blocked_clients"] == 1)
    before: Any = db.info("clients")
    async with work(echo, store_results=True):
        assert await asyncio.gather(*waits) == [*range(200), *range(200)]
    # This client, the queue, and its ear.
    assert before["connected_clients"] <= 4


@pytest.mark.parametrize("value", [0, False, "", []])
async def test_a_falsy_result_is_a_result(queue: Queue, work: Work, value: Any) -> None:
    async with work(echo, store_results=True):
        job = await queue.add("job", value)
        assert await job.wait_for_result(**RARELY) == value


@pytest.mark.parametrize("stores", [True, False])
async def test_a_handler_that_returns_nothing_ends_the_wait_with_nothing(
    queue: Queue, work: Work, stores: bool
) -> None:
    async with work(echo, store_results=stores):
        job = await queue.add("job", None, delay_ms=50)
        assert await job.wait_for_result(timeout=60, poll_interval=0.05) is None


async def test_a_job_that_dies_fails_its_waiters_with_the_reason(
    queue: Queue, work: Work, keys: Keys
) -> None:
    async def handler(_: Job) -> None:
        raise Reject("no")

    job = await queue.add("job", None)
    waits = [asyncio.ensure_future(job.wait_for_result(**RARELY)) for _ in range(3)]
    await asyncio.sleep(0)
    async with work(handler, store_results=True):
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(outcome, JobFailed)
            assert (outcome.queue, outcome.id, outcome.reason) == (
                keys.queue,
                job.id,
                "unrecoverable",
            )


async def test_waiting_for_a_result_continues_over_retries(queue: Queue, work: Work) -> None:
    async def handler(job: Job) -> str:
        if job.attempt < 3:
            raise ValueError
        return "at last"

    job = await queue.add("job", None, backoff=BackoffSpec.fixed(1, jitter_ms=0))
    waiting = asyncio.ensure_future(job.wait_for_result(**RARELY))
    async with work(handler, store_results=True):
        assert await waiting == "at last"


async def test_a_wait_for_a_result_times_out(queue: Queue, work: Work) -> None:
    held = GatedHandler()
    job = await queue.add("job", None)
    async with work(held, store_results=True):
        await held.holds(1)
        with pytest.raises(TimeoutError):
            await job.wait_for_result(timeout=0.05)
        held.go.set()


async def test_the_result_of_a_worker_without_events_is_polled(
    open_queue: OpenQueue, work: Work
) -> None:
    queue = open_queue(events_enabled=False)
    async with work(echo, store_results=True, events_enabled=False):
        job = await queue.add("job", "quiet", delay_ms=50)
        assert await job.wait_for_result(timeout=60) == "quiet"


async def test_results_can_be_awaited_one_after_the_other(queue: Queue, work: Work) -> None:
    async with work(echo, store_results=True):
        for n in range(5):
            job = await queue.add("job", n)
            assert await job.wait_for_result(**RARELY) == n


async def test_a_cancelled_wait_does_not_affect_others(queue: Queue, work: Work) -> None:
    job = await queue.add("job", "value")
    first, second = (asyncio.ensure_future(job.wait_for_result(**RARELY)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with work(echo, store_results=True):
        assert await second == "value"
    assert first.cancelled()


async def test_a_thread_waits_too(blocking: BlockingQueue, work: Work) -> None:
    job = blocking.add("job", "value", delay_ms=50)
    async with work(echo, store_results=True):
        assert await asyncio.to_thread(job.wait_for_result, timeout=60) == "value"


async def test_only_a_producers_job_can_be_waited_for(queue: Queue, work: Work) -> None:
    said: list[str] = []

    async def handler(job: Job) -> None:
        try:
            await job.wait_for_result()
        except RuntimeError as error:
            said.append(str(error))

    await queue.add("job", None)
    async with work(handler) as worker:
        await completed(worker, 1)
    assert said == ["wait_for_result needs a job returned by Queue.add"]


async def test_a_death_before_the_wait_began_is_noticed(queue: Queue, work: Work) -> None:
    async def handler(_: Job) -> None:
        raise Reject("no")

    job = await queue.add("job", None)
    async with work(handler, store_results=True) as worker:
        await buried(worker, 1)
    with pytest.raises(JobFailed, match="unrecoverable"):
        await job.wait_for_result(timeout=60)
