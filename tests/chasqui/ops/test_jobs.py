"""Operations on single jobs (find, remove, retry), and the list of workers with their jobs."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tambomq.errors import InvalidFormat, JobBusy, QueueFull
from tests.chasqui.conftest import Connect, OpenQueue, Work
from tests.chasqui.working import GatedHandler, buried, completed, emitted_events

HOUR_MS = 3_600_000


async def double(job: Job) -> Any:
    return job.data * 2


async def refuse(_: Job) -> None:
    raise UnrecoverableError("no such customer")


def test_a_job_is_found_where_it_waits(connect: Connect) -> None:
    queue = connect()
    jobs = queue.add_bulk([{"name": "n", "data": place} for place in range(700)])
    named = queue.add("mail", {"to": "ada"}, job_id="mine")
    for job in (jobs[0], jobs[699], named):
        found = queue.get_job(job.id)
        assert found is not None
        assert (found.id, found.state, found.name, found.data) == (
            *(job.id, "waiting"),
            *(job.name, job.data),
        )
        assert (found.attempts_made, found.created_at_ms) == (0, job.created_at_ms)
    assert queue.get_job("nobody") is None


def test_a_delayed_job_is_found_with_and_without_an_id_of_its_own(connect: Connect) -> None:
    queue = connect()
    queue.add_bulk([{"name": "n", "data": n, "delay_ms": HOUR_MS} for n in range(300)])
    own = queue.add("mail", 1, delay_ms=HOUR_MS, job_id="mine")
    other = queue.add("mail", 2, delay_ms=2 * HOUR_MS)
    for job, due_ms in ((own, HOUR_MS), (other, 2 * HOUR_MS)):
        found = queue.get_job(job.id)
        assert found is not None
        assert (found.state, found.name, found.data) == ("delayed", "mail", job.data)
        assert found.due_at_ms == job.created_at_ms + due_ms


async def test_an_active_job_shows_its_worker_and_cannot_be_removed(
    queue: Queue, work: Work
) -> None:
    held = GatedHandler()
    job = await queue.add("mail", 1)
    async with work(held, consumer_id="me") as worker:
        await held.holds(1)
        found = await queue.get_job(job.id)
        assert found is not None
        assert (found.state, found.worker) == ("active", "me")
        [one] = await queue.get_workers()
        assert (one.name, one.held) == ("me", 1)
        assert [(each.id, each.name, each.deliveries) for each in one.jobs] == [
            (job.id, "mail", 1),
        ]
        with pytest.raises(JobBusy, match="'me'"):
            await queue.remove_job(job.id)
        assert await queue.retry_job(job.id) is False
        held.go.set()
        await completed(worker, 1)


async def test_a_completed_job_is_found_by_its_result_or_its_events(
    queue: Queue, work: Work
) -> None:
    with_result, without = await queue.add("n", 21), await queue.add("n", 1, job_id="mine")
    async with work(double, store_results=True) as worker:
        await completed(worker, 2)
    found = await queue.get_job(with_result.id)
    assert found is not None
    assert (found.state, found.result) == ("completed", 42)
    found = await queue.get_job(without.id)
    assert found is not None
    assert found.state == "completed"


async def test_a_dead_job_is_shown_with_its_error_and_can_be_retried(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job, other = await queue.add("n", 1), await queue.add("n", 2)
    async with work(refuse) as worker:
        await buried(worker, 2)
    found = await queue.get_job(job.id)
    assert found is not None
    assert (found.state, found.reason, found.detail) == (
        *("dead", "unrecoverable"),
        "no such customer",
    )
    assert found.error_type == "tambomq.errors.UnrecoverableError"
    assert "in refuse" in (found.traceback or "")
    assert await queue.retry_job(job.id) is True
    again = await queue.get_job(job.id)
    assert again is not None
    assert (again.state, again.attempts_made, db.xlen(keys.dlq)) == ("waiting", 0, 1)
    assert await queue.remove_job(other.id) is True
    assert db.xlen(keys.dlq) == 0


def test_a_job_is_removed_in_whatever_state(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    waiting, later = queue.add("mail", 1), queue.add("mail", 2, delay_ms=HOUR_MS, job_id="mine")
    assert [queue.remove_job(job.id) for job in (waiting, later, later)] == [True, True, False]
    assert (db.xlen(keys.stream), db.zcard(keys.delayed)) == (0, 0)
    assert [event["id"] for event in emitted_events(db, keys, "cancelled")] == [waiting.id, "mine"]
    # The id may be scheduled anew.
    assert queue.add_unique("mail", 2, delay_ms=HOUR_MS, job_id="mine").added is True


def test_a_delayed_job_can_be_run_at_once(connect: Connect, db: redis.Redis, keys: Keys) -> None:
    queue = connect()
    job = queue.add("mail", 1, delay_ms=HOUR_MS, job_id="mine")
    assert queue.retry_job("mine") is True
    rows: Any = db.zrange(keys.delayed, 0, -1, withscores=True)
    [(_, due)] = rows
    assert due < job.created_at_ms + HOUR_MS / 2
    assert queue.retry_job("nobody") is False


async def test_a_dead_job_cannot_be_retried_into_a_full_queue(
    queue: Queue, open_queue: OpenQueue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    job = await queue.add("n", 1)
    async with work(refuse) as worker:
        await buried(worker, 1)
    small = open_queue(max_stream_len=1)
    await small.add("n", 2)
    with pytest.raises(QueueFull):
        await small.retry_job(job.id)
    assert db.xlen(keys.dlq) == 1


def test_a_queue_without_workers_lists_none(connect: Connect) -> None:
    queue = connect()
    assert queue.get_workers() == []
    queue.add("n", 1)
    assert queue.get_workers() == []


@pytest.mark.parametrize("id", ["", " ", None])
def test_an_invalid_id_is_refused(connect: Connect, id: Any) -> None:
    queue = connect()
    for ask in (queue.get_job, queue.remove_job, queue.retry_job):
        with pytest.raises(InvalidFormat):
            ask(id)
