"""What a server that takes messages sees of the alarms."""

from __future__ import annotations

import asyncio

import pytest
import redis

from tambomq.alarms import ops
from tambomq.alarms.keys import ALARMS
from tambomq.alarms.model import Alarm
from tambomq.alarms.watch import AlarmWatch, refuse_alarmed
from tambomq.errors import AlarmRaised, StoreFull
from tests.alarms.stores import opened_store
from tests.servers import Server, eventually_async

MEMORY = Alarm("memory", "", 95.0, 90.0, 80.0)
LENGTH = Alarm("queue_length", "gomq:long", 95.0, 90.0, 80.0)


async def test_a_queue_is_refused_while_an_alarm_stops_it(server: Server) -> None:
    async with opened_store(server.url) as store:
        watch = AlarmWatch(store, "gomq")
        await store.run(ops.raise_alarms("a", (LENGTH,), 60_000))
        await watch.look()
        watch.check("other")
        with pytest.raises(AlarmRaised, match="queue gomq:long has 95 messages"):
            watch.check("long", 3)
        assert watch.refused == 3
        await store.run(ops.raise_alarms("a", (), 60_000))
        await watch.look()
        assert not watch.alarms


async def test_the_watch_finds_a_raised_alarm_by_polling(server: Server) -> None:
    async with opened_store(server.url) as store:
        watch = AlarmWatch(store, "gomq")
        running = asyncio.ensure_future(watch.run())
        try:
            await store.run(ops.raise_alarms("a", (MEMORY,), 60_000))
            await eventually_async(lambda: watch.alarms == (MEMORY,), within_s=20)
        finally:
            running.cancel()


async def test_without_redis_there_are_no_alarms() -> None:
    async with opened_store() as store:
        watch = AlarmWatch(store, "gomq")
        watch.alarms = (MEMORY,)
        await watch.look()
        assert not watch.alarms


async def test_alarms_that_cannot_be_read_are_said_once(
    server: Server, db: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_store(server.url) as store:
        watch = AlarmWatch(store, "gomq")
        for _ in range(2):
            db.set(ALARMS, "no hash")
            await watch.look()
            await watch.look()
            assert not watch.alarms
            db.delete(ALARMS)
            await watch.look()
    assert caplog.text.count("no alarm stops producers here") == 2


async def test_one_message_is_refused_by_what_redis_has_now(server: Server) -> None:
    async with opened_store(server.url) as store:
        await refuse_alarmed(store, "rsmq", "orders")
        await store.run(ops.raise_alarms("a", (MEMORY,), 60_000))
        # Code that handles a full server handles an alarm too.
        with pytest.raises(StoreFull):
            await refuse_alarmed(store, "rsmq", "orders")
