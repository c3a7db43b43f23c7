"""The events a worker emits about its jobs, with all fields in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from tambomq.chasqui import BackoffSpec, Job, Queue, QueueEvents
from tambomq.chasqui.keys import Keys
from tambomq.clock import now_ms
from tambomq.errors import UnrecoverableError
from tests.chasqui import working
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.vectors import vector
from tests.chasqui.working import GatedHandler, buried, completed, emitted_events
from tests.servers import Server, eventually_async

server = working.server

ONCE_MORE = BackoffSpec.fixed(1, jitter_ms=0)


async def nothing(_: Job) -> None:
    pass


async def drained(db: redis.Redis, keys: Keys, times: int) -> None:
    await eventually_async(lambda: len(emitted_events(db, keys, "drained")) == times)


def engine_fields(name: str) -> list[str]:
    """The names of the fields of an event as the engine writes them."""
    return [field.decode() for field in vector(f"event/{name}").fields[::2]]


@pytest.mark.parametrize("name", ["mail", ""])
async def test_a_job_that_succeeds_is_active_then_completed(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys, name: str
) -> None:
    before = now_ms()
    job = await queue.add(name, None)
    async with work(nothing) as worker:
        await completed(worker, 1)
    active, done = emitted_events(
        db, keys, "active", "completed", "failed", "dlq", "retry-scheduled"
    )
    named = {"n": name} if name else {}
    assert active == {"e": "active", "id": job.id, "ts": active["ts"], **named, "attempt": "1"}
    assert list(active) == engine_fields("active_named" if name else "active_unnamed")
    assert done == {
        "e": "completed", "id": job.id, "ts": done["ts"], **named,
        "attempt": "1", "duration_us": done["duration_us"],
    }  # fmt: skip
    assert [field for field in engine_fields("completed") if field != "n" or name] == list(done)
    assert before <= int(active["ts"]) <= int(done["ts"]) <= now_ms()
    assert int(done["duration_us"]) >= 0


async def test_a_job_with_a_stored_result_emits_the_same_events(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> int:
        return 1

    await queue.add("mail", None)
    async with work(handler, store_results=True) as worker:
        await completed(worker, 1)
    active, done = emitted_events(db, keys, "active", "completed")
    assert (list(active), list(done)) == (engine_fields("active_named"), engine_fields("completed"))


async def test_the_events_of_a_failed_job_have_the_reason_and_the_backoff(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> None:
        raise ValueError("boom")

    job = await queue.add("mail", None, attempts=2, backoff=ONCE_MORE)
    async with work(handler) as worker:
        await buried(worker, 1)
    names = ("active", "failed", "retry-scheduled", "waiting", "completed", "dlq")
    events = emitted_events(db, keys, *names)
    while events[0]["e"] == "waiting":
        # The queue's options decide whether an add emits an event.
        del events[0]
    assert [event["e"] for event in events] == [
        "active", "failed", "retry-scheduled", "waiting", "active", "failed", "dlq",
    ]  # fmt: skip
    _, failed, scheduled, waiting, again, last, dead = events
    assert list(failed) == list(last) == engine_fields("failed")
    assert (failed["attempt"], failed["reason"], last["attempt"]) == ("1", "boom", "2")
    assert list(scheduled) == ["e", "id", "ts", "n", "attempt", "backoff_ms"]
    assert (scheduled["attempt"], scheduled["backoff_ms"]) == ("2", "1")
    assert waiting == {"e": "waiting", "id": job.id, "ts": waiting["ts"], "n": "mail"}
    assert again["attempt"] == "2"
    assert list(dead) == engine_fields("dlq_after_run")
    assert (dead["attempt"], dead["reason"]) == ("2", "retries_exhausted")
    assert {event["id"] for event in events} == {job.id}


async def test_a_job_given_up_is_failed_then_dead(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(_: Job) -> None:
        raise UnrecoverableError("no such customer")

    await queue.add("unrec", None)
    async with work(handler) as worker:
        await buried(worker, 1)
    _, failed, dead = emitted_events(db, keys, "active", "failed", "dlq")
    assert failed["reason"] == "no such customer"
    assert list(dead) == engine_fields("dlq_unrecoverable")
    assert (dead["n"], dead["attempt"], dead["reason"]) == ("unrec", "1", "unrecoverable")


@pytest.mark.parametrize(
    ("source", "recorded", "reason"),
    [
        ({"d": b"\xc1", "n": "job"}, "dlq_reader_side", "decode_failed"),
        ({"x": b"y", "n": "job"}, "dlq_reader_side", "malformed"),
        ({"d": b"x" * 200, "n": "big"}, "dlq_oversize", "oversize_payload"),
    ],
)
async def test_a_job_that_cannot_run_has_only_the_event_dlq(
    work: Work, db: redis.Redis, keys: Keys, source: Any, recorded: str, reason: str
) -> None:
    db.xadd(keys.stream, source)
    async with work(nothing, max_payload_bytes=150) as worker:
        await buried(worker, 1)
    (dead,) = emitted_events(db, keys, "active", "failed", "dlq")
    assert list(dead) == engine_fields(recorded)
    assert (dead["id"], dead["attempt"], dead["reason"]) == ("", "0", reason)


async def test_no_job_is_completed_before_it_is_active(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    go = asyncio.Event()

    # More start at once than one round trip reports, and the last to start end first.
    async def handler(job: Job) -> None:
        if job.data < 350:
            await go.wait()

    await queue.add_bulk([{"name": "job", "data": n} for n in range(700)])
    async with work(handler, concurrency=700, read_count=700) as worker:
        await completed(worker, 350)
        go.set()
        await completed(worker, 700)
    active: set[str] = set()
    for event in emitted_events(db, keys, "active", "completed"):
        if event["e"] == "active":
            active.add(event["id"])
        else:
            assert event["id"] in active
    assert len(active) == 700


async def test_a_queue_that_has_been_emptied_is_drained_once(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async with work(nothing, read_block_ms=20) as worker:
        for round_ in (1, 2):
            await queue.add_bulk([{"name": "job", "data": None}] * 3)
            await completed(worker, 3 * round_)
            await drained(db, keys, round_)
        await queue.add("job", None)
        await completed(worker, 7)
    events = emitted_events(db, keys, "completed", "drained")
    assert [event["e"] for event in events[:8]] == [*["completed"] * 3, "drained"] * 2
    assert events[3] == {"e": "drained", "id": "", "ts": events[3]["ts"]}


async def test_a_queue_that_was_empty_emits_no_drained_event(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async with work(nothing, read_block_ms=1) as worker:
        # A delayed job passes only after reads that brought nothing.
        await queue.add("job", None, delay_ms=100)
        await completed(worker, 1)
    assert emitted_events(db, keys, "drained", "active")[0]["e"] == "active"


async def test_events_off_writes_none(
    open_queue: OpenQueue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    async def handler(job: Job) -> Any:
        await job.update_progress(50)
        if job.data == "bad":
            raise ValueError
        return job.data

    queue = open_queue(events_enabled=False)
    await queue.add("job", "good")
    await queue.add("job", None)
    await queue.add("job", "bad", attempts=2, backoff=ONCE_MORE)
    await queue.add("job", "late", delay_ms=1)
    db.xadd(keys.stream, {"x": "y"})
    options: dict[str, Any] = {"events_enabled": False, "store_results": True, "read_block_ms": 5}
    async with work(handler, limiter=(2, 20), **options) as worker:
        await completed(worker, 3)
        await buried(worker, 2)
    assert not db.exists(keys.events)


async def test_an_events_stream_that_cannot_be_written_stops_no_job(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    await queue.add_bulk([{"name": "job", "data": n} for n in range(10)])
    db.delete(keys.events)
    db.set(keys.events, "in the way")
    async with work(nothing) as worker:
        await completed(worker, 10)
    assert worker.stats.lost == 0


async def test_a_subscriber_receives_the_events_of_the_worker(
    queue: Queue, work: Work, server: Server, keys: Keys
) -> None:
    heard: list[tuple[str, str | None, str, Any]] = []

    async def listen(events: QueueEvents) -> None:
        async for event in events:
            heard.append((event.name, event.job_id, event.job_name, event.fields.get("attempt")))
            if event.name == "completed":
                return

    async with QueueEvents(keys.queue, redis_url=server.url) as events:
        listening = asyncio.create_task(listen(events))
        job = await queue.add("mail", None)
        async with work(nothing) as worker:
            await asyncio.wait_for(listening, 60)
            await completed(worker, 1)
    assert heard[-2:] == [("active", job.id, "mail", 1), ("completed", job.id, "mail", 1)]


async def test_a_duration_is_that_of_the_handler(
    queue: Queue, work: Work, db: redis.Redis, keys: Keys
) -> None:
    held = GatedHandler()
    await queue.add("job", None)
    async with work(held) as worker:
        await held.holds(1)
        await asyncio.sleep(0.02)
        held.go.set()
        await completed(worker, 1)
    (done,) = emitted_events(db, keys, "completed")
    assert int(done["duration_us"]) >= 20_000
