"""Results and progress of jobs, as producers read them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import (
    InvalidFormat,
    InvalidValue,
    JobCancelled,
    JobFailed,
    RemoteProtocolError,
)
from tests.chasqui.conftest import Work
from tests.chasqui.stored import has_event_reader
from tests.servers import eventually_async


async def double(job: Job) -> Any:
    return job.data * 2


# ── looking ──────────────────────────────────────────────────────────────────


def test_a_result_is_none_until_it_is_stored(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    assert twin.get_job_result("a") is None
    db.set(keys.result("a"), encode_payload({"sum": [1, 2]}))
    assert twin.get_job_result("a") == {"sum": [1, 2]}


@pytest.mark.parametrize("value", [False, 0, "", b"", [], {}])
def test_an_empty_value_is_a_result_too(
    twin: BlockingQueue, db: redis.Redis, keys: Keys, value: Any
) -> None:
    db.set(keys.result("a"), encode_payload(value))
    assert twin.get_job_result("a") == value
    assert twin.get_job_result("a") is not None


def test_many_results_are_returned_in_order(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.result("a"), encode_payload(1))
    db.set(keys.result("c"), encode_payload(3))
    assert twin.get_job_result_bulk(["c", "b", "a"]) == [3, None, 1]
    assert twin.get_job_result_bulk([]) == []


def test_a_stored_result_that_is_not_messagepack_raises(
    twin: BlockingQueue, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.result("a"), b"\xc1")
    with pytest.raises(RemoteProtocolError, match="MessagePack"):
        twin.get_job_result("a")


def test_progress_is_json_or_nothing(twin: BlockingQueue, db: redis.Redis, keys: Keys) -> None:
    assert twin.get_progress("a") is None
    for stored, progress in ((b"0", 0), (b"100", 100), (b"", None), (b"x", None), (b"-5", -5)):
        db.set(keys.progress("a"), stored)
        assert twin.get_progress("a") == progress


@pytest.mark.parametrize("id", ["", " ", None, 7])
def test_only_an_id_has_a_result(twin: BlockingQueue, id: Any) -> None:
    for ask in (twin.get_job_result, twin.get_progress, twin.cancel_delayed):
        with pytest.raises(InvalidFormat, match="job_id"):
            ask(id)
    with pytest.raises(InvalidFormat, match="job_id"):
        twin.get_job_result_bulk(["a", id])


# ── waiting ──────────────────────────────────────────────────────────────────


async def test_a_result_is_waited_for(queue: Queue, work: Work) -> None:
    job = await queue.add("n", 21)
    async with work(double, store_results=True):
        assert await job.wait_for_result(timeout=60) == 42
    assert await queue.wait_for_result(job.id, timeout=60) == 42


async def test_hundreds_wait_at_once_on_one_connection(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    jobs = await queue.add_bulk([{"name": "n", "data": place} for place in range(300)])
    waiting = asyncio.gather(*(job.wait_for_result(timeout=60) for job in jobs))
    await eventually_async(lambda: has_event_reader(db))
    async with work(double, store_results=True):
        assert await waiting == [2 * place for place in range(300)]


async def test_several_wait_for_the_same_job(queue: Queue, work: Work) -> None:
    job = await queue.add("n", 1)
    waiting = asyncio.gather(*(job.wait_for_result(timeout=60) for _ in range(5)))
    async with work(double, store_results=True):
        assert await waiting == [2] * 5


async def test_waiting_for_a_job_that_returns_nothing_returns_none(
    queue: Queue, work: Work, db: redis.Redis
) -> None:
    async def nothing(job: Job) -> None:
        pass

    job = await queue.add("n", 1)
    waiting = asyncio.ensure_future(job.wait_for_result(timeout=60))
    await eventually_async(lambda: has_event_reader(db))
    async with work(nothing, store_results=True):
        assert await waiting is None


async def test_waiting_for_a_dead_job_raises(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def never(job: Job) -> None:
        raise UnrecoverableError("no")

    job = await queue.add("n", 1)
    waiting = asyncio.ensure_future(job.wait_for_result(timeout=60))
    await eventually_async(lambda: has_event_reader(db))
    async with work(never):
        with pytest.raises(JobFailed, match=f"{job.id}.*unrecoverable") as caught:
            await waiting
    assert (caught.value.queue, caught.value.id) == (keys.queue, job.id)


@pytest.mark.parametrize("delay_ms", [None, 3_600_000])
async def test_waiting_for_a_job_ends_when_it_is_cancelled(
    queue: Queue, db: redis.Redis, delay_ms: int | None
) -> None:
    job = await queue.add("n", 1, job_id="a", delay_ms=delay_ms)
    waiting = asyncio.ensure_future(job.wait_for_result(timeout=60))
    await eventually_async(lambda: has_event_reader(db))
    assert await queue.cancel_job(job.id, "not needed")
    with pytest.raises(JobCancelled, match=r"'a' .* was cancelled: not needed") as caught:
        await waiting
    assert (caught.value.id, caught.value.reason) == ("a", "not needed")


async def test_waiting_for_a_job_ends_when_it_is_cancelled_while_it_runs(
    queue: Queue, twin: BlockingQueue, work: Work
) -> None:
    started = asyncio.Event()

    async def forever(job: Job) -> None:
        started.set()
        await asyncio.Event().wait()

    job = await queue.add("n", 1)
    async with work(forever):
        await started.wait()
        waiting = asyncio.create_task(asyncio.to_thread(twin.wait_for_result, job.id, timeout=60))
        assert await queue.cancel_job(job.id)
        with pytest.raises(JobCancelled, match=r"was cancelled$"):
            await waiting


def test_a_job_that_was_cancelled_before_the_wait_ends_it_at_once(twin: BlockingQueue) -> None:
    job = twin.add("n", 1)
    twin.cancel_job(job.id, "not needed")
    with pytest.raises(JobCancelled, match="not needed"):
        twin.wait_for_result(job.id, timeout=60)


def test_a_job_that_was_cancelled_and_added_again_is_waited_for(twin: BlockingQueue) -> None:
    twin.add("n", 1, job_id="a", delay_ms=3_600_000)
    twin.cancel_job("a")
    twin.add("n", 1, job_id="a", delay_ms=3_600_000)
    with pytest.raises(TimeoutError):
        twin.wait_for_result("a", timeout=0.05)


async def test_a_failed_run_is_not_the_end_of_waiting(queue: Queue, work: Work) -> None:
    async def second_time(job: Job) -> int:
        if job.attempt == 1:
            raise ValueError("not yet")
        return job.attempt

    job = await queue.add("n", 1, backoff={"kind": "fixed", "delay_ms": 1, "jitter_ms": 0})
    async with work(second_time, store_results=True):
        assert await job.wait_for_result(timeout=60) == 2


async def test_a_worker_without_events_is_noticed_too(queue: Queue, work: Work) -> None:
    job = await queue.add("n", 21)
    async with work(double, store_results=True, events_enabled=False):
        assert await job.wait_for_result(timeout=60) == 42


async def test_waiting_for_a_result_times_out(queue: Queue) -> None:
    job = await queue.add("n", 1)
    with pytest.raises(TimeoutError):
        await job.wait_for_result(timeout=0.05)
    assert queue._results is not None
    assert queue._results._waiters == {}


async def test_a_cancelled_wait_ends(queue: Queue, db: redis.Redis) -> None:
    waiting = asyncio.ensure_future(queue.wait_for_result("a", timeout=30))
    await eventually_async(lambda: has_event_reader(db))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert queue._results is not None
    assert queue._results._waiters == {}


@pytest.mark.parametrize("value", [0, -1, math.nan, "1", None, True])
def test_a_time_to_wait_is_a_positive_number(twin: BlockingQueue, value: Any) -> None:
    with pytest.raises(InvalidValue, match="timeout"):
        twin.wait_for_result("a", timeout=value)
    with pytest.raises(InvalidValue, match="poll_interval"):
        twin.wait_for_result("a", timeout=1, poll_interval=value)


async def test_progress_comes_from_the_handler(queue: Queue, work: Work) -> None:
    go = asyncio.Event()

    async def slow(job: Job) -> None:
        await job.update_progress(40)
        await go.wait()

    job = await queue.add("n", 1)
    async with work(slow):

        async def has_progress() -> bool:
            return bool(await queue.get_progress(job.id) == 40)

        await eventually_async(has_progress)
        go.set()
