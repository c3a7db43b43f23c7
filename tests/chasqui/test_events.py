"""Reading the events of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis

from tambomq.chasqui import Job, Queue, QueueEvent, QueueEvents
from tambomq.chasqui.keys import Keys
from tambomq.errors import InvalidValue
from tests.chasqui.conftest import OpenQueue, Work
from tests.chasqui.stored import events as stored_events
from tests.chasqui.stored import has_event_reader
from tests.servers import Server, eventually_async

Listen = Callable[..., QueueEvents]

HOUR = 3_600_000
WITHIN_S = 60.0


@pytest.fixture
async def listen(keys: Keys, server: Server) -> AsyncIterator[Listen]:
    """A function from options to the events of the queue, closed after the test."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> QueueEvents:
            events = QueueEvents(keys.queue, **{"redis_url": server.url, **options})
            stack.push_async_callback(events.close)
            return events

        yield make


@pytest.fixture
def loud(open_queue: OpenQueue) -> Queue:
    """A queue that emits an event for every add."""
    return open_queue(announce=True)


async def heard(events: QueueEvents, count: int) -> list[QueueEvent]:
    """The next *count* events."""
    found: list[QueueEvent] = []
    async with asyncio.timeout(WITHIN_S):
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


async def places(events: QueueEvents, count: int) -> list[int]:
    """Return the names of the next *count* jobs, which are numbers."""
    return [int(event.job_name) for event in await heard(events, count)]


# ── received events ──────────────────────────────────────────────────────────


async def test_an_event_has_its_name_and_its_job(loud: Queue, listen: Listen) -> None:
    async with listen() as events:
        job = await loud.add("send", 1, delay_ms=HOUR)
        [event] = await heard(events, 1)
    assert (event.name, event.job_id, event.job_name) == ("delayed", job.id, "send")
    assert event.fields == {"ts": job.created_at_ms, "delay_ms": HOUR}
    assert event.event_id


async def test_events_report_each_state_of_a_job_in_order(
    loud: Queue, listen: Listen, work: Work
) -> None:
    async def second_time(job: Job) -> None:
        if job.attempt == 1:
            raise ValueError("not yet")

    seen: list[QueueEvent] = []
    async with listen() as events, asyncio.timeout(WITHIN_S):
        backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
        job = await loud.add("n", 1, backoff=backoff)
        async with work(second_time):
            async for event in events:
                seen += [event] if event.job_id == job.id else []
                if event.name == "completed":
                    break
    assert [event.name for event in seen] == [
        *("waiting", "active", "failed", "retry-scheduled", "waiting", "active", "completed"),
    ]
    failed = next(event for event in seen if event.name == "failed")
    assert failed.fields["reason"] == "not yet"
    assert isinstance(failed.fields["duration_us"], int)


async def test_by_default_only_new_events_are_yielded(loud: Queue, listen: Listen) -> None:
    await loud.add("0", 1)
    async with listen() as events:
        await loud.add("1", 1)
        assert await places(events, 1) == [1]


async def test_all_kept_events_are_yielded_from_zero(loud: Queue, listen: Listen) -> None:
    await loud.add_bulk([{"name": str(place), "data": 1} for place in range(7)])
    events = listen(last_event_id="0", count=2)
    assert await places(events, 7) == list(range(7))


async def test_events_after_the_given_id_are_yielded(
    loud: Queue, listen: Listen, db: redis.Redis, keys: Keys
) -> None:
    await loud.add_bulk([{"name": str(place), "data": 1} for place in range(5)])
    third = stored_events(db, keys)[2].event_id
    assert await places(listen(last_event_id=third), 2) == [3, 4]


async def test_every_subscriber_receives_all_events(loud: Queue, listen: Listen) -> None:
    async with listen() as one, listen() as other:
        await loud.add_bulk([{"name": str(place), "data": 1} for place in range(3)])
        assert await places(one, 3) == await places(other, 3) == [0, 1, 2]


async def test_an_interrupted_iteration_misses_nothing(loud: Queue, listen: Listen) -> None:
    async with listen() as events:
        await loud.add_bulk([{"name": str(place), "data": 1} for place in range(5)])
        assert await places(events, 2) == [0, 1]
        await loud.add("5", 1)
        assert await places(events, 4) == [2, 3, 4, 5]


# ── nothing falls between two reads ──────────────────────────────────────────


async def test_events_between_opening_and_reading_are_yielded(loud: Queue, listen: Listen) -> None:
    events = listen()
    await events.open()
    await loud.add("0", 1)
    assert await places(events, 1) == [0]


async def test_events_between_two_empty_reads_are_yielded(loud: Queue, listen: Listen) -> None:
    # Reads that wait for a millisecond: most adds fall between two of them.
    async with listen(block_ms=1) as events:
        listening = asyncio.create_task(places(events, 100))
        for place in range(100):
            await loud.add(str(place), 1)
            await asyncio.sleep(0)
        assert await listening == list(range(100))


async def test_opening_twice_forgets_nothing(loud: Queue, listen: Listen) -> None:
    async with listen() as events:
        await loud.add("0", 1)
        await events.open()
        assert await places(events, 1) == [0]


# ── the end ──────────────────────────────────────────────────────────────────


async def test_closing_ends_an_iteration_that_waits(listen: Listen, db: redis.Redis) -> None:
    events = listen(block_ms=20_000)
    listening = asyncio.create_task(heard(events, 1))
    await eventually_async(lambda: has_event_reader(db))
    await events.close()
    assert await listening == []


async def test_closing_ends_an_iteration_amid_a_page(loud: Queue, listen: Listen) -> None:
    await loud.add_bulk([{"name": str(place), "data": 1} for place in range(5)])
    events, found = listen(last_event_id="0"), []
    async for event in events:
        found.append(event.job_name)
        await events.close()
    assert found == ["0"]


async def test_a_closed_subscription_yields_nothing(loud: Queue, listen: Listen) -> None:
    await loud.add("0", 1)
    events = listen(last_event_id="0")
    await events.close()
    assert await heard(events, 1) == []


async def test_a_cancelled_iteration_leaves_nothing_behind(listen: Listen, db: redis.Redis) -> None:
    events = listen()
    listening = asyncio.create_task(heard(events, 1))
    await eventually_async(lambda: has_event_reader(db))
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await events.close()
    await eventually_async(lambda: not has_event_reader(db))


# ── absences ─────────────────────────────────────────────────────────────────


async def test_a_restart_of_the_server_is_survived(private_server: Server) -> None:
    url = private_server.url
    async with (
        Queue("q", redis_url=url, announce=True) as queue,
        QueueEvents("q", redis_url=url) as events,
    ):
        listening = asyncio.create_task(places(events, 20))
        for place in range(10):
            await queue.add(str(place), 1)
        await asyncio.to_thread(private_server.kill)
        await asyncio.to_thread(private_server.restart)
        for place in range(10, 20):
            await queue.add(str(place), 1)
        assert await listening == list(range(20))


async def test_reading_events_continues_once_a_key_of_another_type_is_deleted(
    loud: Queue, listen: Listen, db: redis.Redis, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    db.set(keys.events, "not a stream")
    listening = asyncio.create_task(places(listen(last_event_id="0"), 1))
    await eventually_async(lambda: "cannot read the events of queue" in caplog.text)
    db.delete(keys.events)
    await loud.add("0", 1)
    assert await listening == [0]


# ── options ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", True, None, 2**32])
async def test_options_are_whole_numbers_above_zero(value: Any) -> None:
    for option in ("block_ms", "count"):
        with pytest.raises(InvalidValue, match=option):
            QueueEvents("q", **{option: value})


async def test_no_read_blocks_longer_than_the_store_waits(listen: Listen) -> None:
    assert listen(block_ms=10_000_000)._block_ms < 30_000


async def test_a_subscription_has_the_name_of_its_queue(listen: Listen, keys: Keys) -> None:
    assert listen().name == keys.queue
