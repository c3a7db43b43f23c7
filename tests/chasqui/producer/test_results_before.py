"""Waiting for the result of a job that has ended returns at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Job, Queue, UnrecoverableError
from tambomq.chasqui.keys import Keys
from tambomq.clock import now_ms
from tambomq.errors import JobFailed
from tambomq.ids import ulid
from tests.chasqui.conftest import Connect, OpenQueue, Work
from tests.chasqui.stored import emitted_events, has_event_reader
from tests.servers import eventually_async

LONG_S = 30
"""Longer than any wait here: a missed end would end in a time-out."""


@pytest.fixture(autouse=True)
def our_own_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers store a result before its event, so a wait needs no grace period for it."""
    for module in ("results", "blocking_results"):
        monkeypatch.setattr(f"tambomq.chasqui.producer.{module}.RESULT_LAG_S", 0.001)


@pytest.fixture
def only_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that finds nothing at first reads again after the time-out."""
    for module in ("results", "blocking_results"):
        monkeypatch.setattr(f"tambomq.chasqui.producer.{module}.POLL_EVERY_S", 1000.0)


async def doomed(job: Job) -> Any:
    if job.data == "die":
        raise UnrecoverableError("no")
    return None if job.data == "nothing" else job.data


async def ended(db: redis.Redis, keys: Keys, count: int = 1) -> None:
    """Return when so many jobs have ended."""
    await eventually_async(
        lambda: sum(name in ("completed", "dlq") for name, _ in emitted_events(db, keys)) >= count,
        within_s=20,
    )


async def outcome(queue: Queue | BlockingQueue, job_id: str) -> Any:
    """Return the outcome of a wait: a value, or the reason why the job is dead."""
    try:
        if isinstance(queue, Queue):
            return await queue.wait_for_result(job_id, timeout=LONG_S)
        return await asyncio.to_thread(queue.wait_for_result, job_id, timeout=LONG_S)
    except JobFailed as error:
        return error.reason


@pytest.fixture(params=["asyncio", "threads"])
def either(request: pytest.FixtureRequest, queue: Queue, blocking: BlockingQueue) -> Any:
    return queue if request.param == "asyncio" else blocking


@pytest.mark.parametrize(
    ("data", "result"), [("die", "unrecoverable"), ("nothing", None), ("value", "value")]
)
@pytest.mark.parametrize("job_id", [None, "order-7"])
@pytest.mark.usefixtures("only_one_look")
async def test_a_job_that_has_ended_is_settled_at_once(
    queue: Queue, either: Any, work: Work, db: redis.Redis, keys: Keys, data: str, result: Any,
    job_id: str | None,
) -> None:  # fmt: skip
    job = await queue.add("n", data, job_id=job_id)
    async with work(doomed, store_results=True):
        await ended(db, keys)
    assert await outcome(either, job.id) == result


@pytest.mark.parametrize("data", ["die", "nothing"])
@pytest.mark.usefixtures("only_one_look")
async def test_thirty_of_thirty_are_settled_two_milliseconds_after_they_were_added(
    queue: Queue, either: Any, work: Work, data: str
) -> None:
    result = "unrecoverable" if data == "die" else None
    async with work(doomed, store_results=True):
        for _ in range(30):
            job = await queue.add("n", data)
            await asyncio.sleep(0.002)
            assert await outcome(either, job.id) == result


async def test_hundreds_of_late_waits_return(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    kinds = ["die", "nothing", "value"] * 100
    jobs = await queue.add_bulk([{"name": "n", "data": kind} for kind in kinds])
    async with work(doomed, store_results=True):
        await ended(db, keys, 300)
    found = await asyncio.gather(*(outcome(queue, job.id) for job in jobs))
    assert found == ["unrecoverable", None, "value"] * 100


async def test_earlier_waits_return_while_late_ones_are_resolved(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    late = await queue.add("n", "die")
    async with work(doomed, store_results=True):
        await ended(db, keys)
    waiting = [asyncio.ensure_future(outcome(queue, id)) for id in ("a", "b")]
    assert await outcome(queue, late.id) == "unrecoverable"
    await queue.add("n", "nothing", job_id="a")
    await queue.add("n", "value", job_id="b")
    async with work(doomed, store_results=True):
        assert await asyncio.gather(*waiting) == [None, "value"]


async def test_a_producer_whose_clock_is_ahead_is_waited_for_as_well(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, either: Any
) -> None:
    job = await queue.add("n", "die", job_id=ulid(now_ms() + 3000))
    async with work(doomed):
        await ended(db, keys)
    assert await outcome(either, job.id) == "unrecoverable"


# ── jobs that came in again ──────────────────────────────────────────────────


@pytest.mark.parametrize("events_enabled", [True, False], ids=["with an event", "without"])
async def test_a_job_that_was_replayed_is_waited_for(
    open_queue: OpenQueue, queue: Queue, either: Any, work: Work, db: redis.Redis, keys: Keys,
    events_enabled: bool,
) -> None:  # fmt: skip
    job = await queue.add("n", "die")
    async with work(doomed):
        await ended(db, keys)
    assert await open_queue(events_enabled=events_enabled).replay_dlq() == 1
    waiting = asyncio.ensure_future(outcome(either, job.id))

    async def well(_: Job) -> str:
        return "well"

    async with work(well, store_results=True):
        assert await waiting == "well"


async def test_an_id_that_is_used_again_is_waited_for(
    connect: Connect, either: Any, work: Work, db: redis.Redis, keys: Keys
) -> None:
    connect().add("n", "nothing", job_id="nightly")
    async with work(doomed, store_results=True):
        await ended(db, keys)
    connect().add("n", "again", job_id="nightly")
    waiting = asyncio.ensure_future(outcome(either, "nightly"))
    await eventually_async(lambda: has_event_reader(db))
    async with work(doomed, store_results=True):
        assert await waiting == "again"


async def test_an_id_that_waits_to_be_due_again_is_waited_for(
    connect: Connect, either: Any, work: Work, db: redis.Redis, keys: Keys
) -> None:
    connect().add("n", "nothing", job_id="nightly")
    async with work(doomed, store_results=True):
        await ended(db, keys)
    connect().add("n", "again", job_id="nightly", delay_ms=50)
    waiting = asyncio.ensure_future(outcome(either, "nightly"))
    await eventually_async(lambda: has_event_reader(db))
    async with work(doomed, store_results=True):
        assert await waiting == "again"
