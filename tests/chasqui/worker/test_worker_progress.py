"""Progress that a handler reports from inside its job."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue
from tambomq.chasqui.keys import Keys
from tests.chasqui import working
from tests.chasqui.conftest import Work
from tests.chasqui.working import GatedHandler, buried, completed, emitted_events, entries
from tests.servers import eventually_async

server = working.server

HOUR_S = 3600


async def on_the_loop(job: Job) -> None:
    for percent in job.data:
        await job.update_progress(percent)


def in_a_thread(job: Job) -> None:
    for percent in job.data:
        job.update_progress(percent)


@functools.wraps(on_the_loop)
def decorated(job: Job) -> Any:
    return on_the_loop(job)


@pytest.mark.parametrize("handler", [on_the_loop, in_a_thread, decorated])
async def test_progress_is_stored_and_emits_an_event(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, handler: Any
) -> None:
    job = await queue.add("mail", [0, 50, 100])
    async with work(handler) as worker:
        await completed(worker, 1)
    assert await queue.get_progress(job.id) == 100
    events = emitted_events(db, keys, "progress")
    assert [event["progress"] for event in events] == ["0", "50", "100"]
    assert list(events[0]) == ["e", "id", "ts", "n", "progress"]
    assert {event["id"] for event in events} == {job.id}
    assert 0 < int(str(db.ttl(keys.progress(job.id)))) <= HOUR_S


async def test_progress_is_seen_while_the_job_runs(queue: Queue, work: Work) -> None:
    held = GatedHandler()

    async def handler(job: Job) -> None:
        await job.update_progress(30)
        await held(job)

    job = await queue.add("mail", None)
    assert await queue.get_progress(job.id) is None
    async with work(handler):
        await held.holds(1)
        assert await queue.get_progress(job.id) == 30
        held.go.set()


async def test_both_queue_classes_return_the_progress(
    queue: Queue, blocking: BlockingQueue, work: Work
) -> None:
    job = await queue.add("mail", [7])
    async with work(on_the_loop) as worker:
        await completed(worker, 1)
    assert await queue.get_progress(job.id) == blocking.get_progress(job.id) == 7


@pytest.mark.parametrize("percent", [-1, 101])
@pytest.mark.parametrize("handler", [on_the_loop, in_a_thread])
async def test_an_invalid_percentage_fails_the_job(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, percent: Any, handler: Any
) -> None:
    job = await queue.add("mail", [percent], attempts=1)
    async with work(handler) as worker:
        await buried(worker, 1)
    (letter,) = entries(db, keys.dlq)
    assert "percent must be" in letter["detail"]
    assert await queue.get_progress(job.id) is None


async def test_progress_of_a_worker_without_events_is_kept_all_the_same(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("mail", [40])
    async with work(on_the_loop, events_enabled=False) as worker:
        await completed(worker, 1)
    assert await queue.get_progress(job.id) == 40
    assert emitted_events(db, keys, "progress") == []


async def test_the_last_progress_of_many_threads_is_stored(queue: Queue, work: Work) -> None:
    jobs = await queue.add_bulk([{"name": "job", "data": list(range(20))} for _ in range(20)])
    async with work(in_a_thread, concurrency=10) as worker:
        await completed(worker, 20)
    assert [await queue.get_progress(job.id) for job in jobs] == [19] * 20


async def test_a_producers_job_cannot_report_progress(queue: Queue) -> None:
    job = await queue.add("mail", None)
    with pytest.raises(RuntimeError, match="update_progress needs a job given to a handler"):
        job.update_progress(50)


async def test_a_retry_begins_where_it_was_left(queue: Queue, work: Work) -> None:
    seen: list[int | None] = []

    async def handler(job: Job) -> None:
        seen.append(await queue.get_progress(job.id))
        if job.attempt == 1:
            await job.update_progress(60)
            raise ValueError

    await queue.add("mail", None, backoff=1)
    async with work(handler) as worker:
        await completed(worker, 1)
    await eventually_async(lambda: seen == [None, 60])
