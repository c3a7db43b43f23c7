from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis

from tambomq.chasqui import BlockingQueue, RepeatPattern
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader import fleet
from tambomq.errors import ComponentFailed, StoreUnavailable
from tambomq.serve import chasqui as module
from tambomq.serve.chasqui import ChasquiComponent
from tambomq.settings.load import ChasquiSettings
from tests.serve.components import given, numbers, opened
from tests.servers import Server, eventually_async

LONG_MS = 3_600_000


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_EVERY_S", 0.02)


@asynccontextmanager
async def leading(server: Server, *queues: str) -> AsyncIterator[ChasquiComponent]:
    """The component, open, and the one that it needs."""
    redis_component = given(server)
    component = ChasquiComponent(ChasquiSettings(queue=queues), redis_component)
    async with opened(redis_component), opened(component):
        yield component


def led(db: redis.Redis, queue: str) -> bool:
    keys = Keys(queue)
    return db.exists(keys.promoter_lock, keys.scheduler_lock) == 2


async def test_a_delayed_job_of_a_queue_that_appears_waits_when_it_is_due(
    server: Server, db: redis.Redis
) -> None:
    keys = Keys("emails")
    async with leading(server):
        with BlockingQueue("emails", redis_url=server.url) as queue:
            queue.add("hello", 1, delay_ms=50)
        await eventually_async(lambda: db.xlen(keys.stream) == 1)
        assert db.zcard(keys.delayed) == 0


async def test_a_repeatable_job_fires(server: Server, db: redis.Redis) -> None:
    keys = Keys("reports")
    with BlockingQueue("reports", redis_url=server.url) as queue:
        queue.upsert_repeatable_job("often", 1, repeat=RepeatPattern.every(100))
    async with leading(server):
        await eventually_async(lambda: db.xlen(keys.stream) >= 2)


async def test_named_queues_are_led_and_no_others(server: Server, db: redis.Redis) -> None:
    with BlockingQueue("other", redis_url=server.url) as queue:
        queue.add("x", 1, delay_ms=LONG_MS)
    async with leading(server, "emails", "reports"):
        await eventually_async(lambda: led(db, "emails") and led(db, "reports"))
        assert not db.exists(Keys("other").promoter_lock)


async def test_a_deleted_queue_is_no_longer_led(server: Server, db: redis.Redis) -> None:
    keys = Keys("emails")
    with BlockingQueue("emails", redis_url=server.url) as queue:
        queue.add("x", 1, delay_ms=LONG_MS)
        async with leading(server) as component:
            await eventually_async(lambda: led(db, "emails"))
            queue.obliterate()
            await eventually_async(lambda: not component._open_fleet.queues)
            await eventually_async(lambda: not db.exists(keys.promoter_lock, keys.scheduler_lock))
            await component.check()
            queue.add("x", 1, delay_ms=LONG_MS)
            await eventually_async(lambda: led(db, "emails"))


async def test_locks_are_given_up_when_it_closes(server: Server, db: redis.Redis) -> None:
    keys = Keys("emails")
    async with leading(server, "emails"):
        await eventually_async(lambda: led(db, "emails"))
    assert not db.exists(keys.promoter_lock, keys.scheduler_lock)


async def test_a_scan_for_queues_is_bounded_and_the_next_one_continues(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGES_PER_SCAN", 1)
    db.mset({f"other:{n}": "" for n in range(5000)})
    with BlockingQueue("emails", redis_url=server.url) as queue:
        queue.add("x", 1, delay_ms=LONG_MS)
    async with leading(server) as component:
        await eventually_async(lambda: component._open_fleet.queues == ["emails"])


async def test_too_many_queues_are_logged_and_the_first_are_led(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUES", 2)
    for name in "cab":
        with BlockingQueue(name, redis_url=server.url) as queue:
            queue.add("x", 1)
    async with leading(server) as component:
        await eventually_async(lambda: component._open_fleet.queues == ["a", "b"])
    assert caplog.text.count("there are 3 queues, and the first 2 are led") == 1


async def test_its_numbers_are_those_of_the_leader(server: Server) -> None:
    with BlockingQueue("emails", redis_url=server.url) as queue:
        queue.add("x", 1)
    async with leading(server) as component:
        found = numbers(await component.metrics())
    assert found == {("led_queues",): 1, ("clock_ahead_seconds",): 0}


async def test_a_damaged_queue_disturbs_no_other(server: Server, db: redis.Redis) -> None:
    db.set(Keys("bad").delayed, "no zset")
    db.set(b"{chasqui:\xff}:stream", "no text")
    good = Keys("good")
    with BlockingQueue("good", redis_url=server.url) as queue:
        queue.add("hello", 1, delay_ms=50)
    async with leading(server) as component:
        await eventually_async(lambda: db.xlen(good.stream) == 1)
        await component.check()


async def test_a_leader_that_hangs_fails_the_check(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading(server, "emails") as component:
        await component.check()
        monkeypatch.setattr(fleet, "STUCK_AFTER_S", -10.0)
        with pytest.raises(ComponentFailed, match="no leader has checked the queues for"):
            await component.check()


async def test_the_check_fails_while_redis_is_unreachable_and_leading_continues_after(
    private_server: Server,
) -> None:
    keys = Keys("emails")
    async with leading(private_server, "emails") as component:
        private_server.kill()
        with pytest.raises(StoreUnavailable):
            await component.check()
        private_server.restart()
        await component.check()
        with BlockingQueue("emails", redis_url=private_server.url) as queue:
            queue.add("hello", 1, delay_ms=50)
        with redis.Redis.from_url(private_server.url) as admin:
            await eventually_async(lambda: admin.xlen(keys.stream) == 1, within_s=20)


async def test_a_wrong_clock_fails_the_check_and_is_a_number(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.chasqui.leader.scheduler.now_ms", lambda: 1_000)
    monkeypatch.setattr("tambomq.chasqui.leader.fleet.now_ms", lambda: 1_000)
    async with leading(server, "a") as component:

        async def why() -> str:
            try:
                await component.check()
            except ComponentFailed as error:
                return str(error)
            return ""

        text = await eventually_async(why)
        assert "the scheduler of queue 'a'" in text
        assert "differ by more than 5 s" in text

        async def is_apart() -> bool:
            return numbers(await component.metrics())["clock_ahead_seconds",] < -1e9

        # The scheduler looks at the clock by itself, perhaps before the fleet's first renewal.
        await eventually_async(is_apart)
        await eventually_async(lambda: db.exists(Keys("a").promoter_lock))
        assert not db.exists(Keys("a").scheduler_lock)
