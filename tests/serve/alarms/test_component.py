"""The alarm component on a real server: raised, published, reported, and cleared by itself."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from tambomq.alarms.ops import read_alarms
from tambomq.serve.alarms.component import AlarmComponent
from tambomq.serve.health import ProcessHealth
from tambomq.settings.load import AlarmsSettings, ServerSettings, Settings
from tests.alarms.stores import opened_store
from tests.serve.components import given, numbers
from tests.servers import Server, eventually_async

BIG = b"x" * (1 << 20)


def component(server: Server, *, redis_url: str | None = "own", **levels: Any) -> AlarmComponent:
    """A component beside a server of the user's own, or the embedded one without *redis_url*."""
    chosen: dict[str, Any] = {"every_s": 0.05, "stop_producers": "on"} | levels
    settings = Settings(
        server=ServerSettings(redis_url=redis_url, data_dir=server.dir),
        alarms=AlarmsSettings(**chosen),
    )
    lengths = levels_of({"gomq:long": 100, "gomq:short": 1})
    return AlarmComponent(settings, given(server), lengths)


def levels_of(queues: dict[str, int]) -> Any:
    async def lengths() -> dict[str, int]:
        return queues

    return lengths


@asynccontextmanager
async def started(found: AlarmComponent) -> AsyncIterator[AlarmComponent]:
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


async def test_memory_raises_an_alarm_and_clears_it_when_it_is_free_again(
    private_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory", "40mb")
        async with (
            started(
                component(private_server, memory_high_percent=50, memory_low_percent=40)
            ) as alarm,
            opened_store(private_server.url) as store,
        ):
            assert await alarm.check() is None
            for number in range(25):
                db.set(f"big:{number}", BIG)
            for _ in range(3):
                await alarm.look()
            (published,) = await store.run(read_alarms())
            assert published.kind == "memory"
            assert "memory has" in (await alarm.check() or "")
            assert numbers(await alarm.metrics())["raised", "memory"] == 1
            for number in range(25):
                db.delete(f"big:{number}")
            await alarm.look()
            assert await store.run(read_alarms()) == ()
            assert await alarm.check() is None
    lines = [each.getMessage() for each in caplog.records if "tambomq.serve" in each.name]
    raised, cleared = lines
    assert raised.startswith("alarm: memory has")
    assert "producers are stopped: add consumers" in raised
    assert cleared.startswith("the alarm is cleared: memory has")


async def test_a_disk_with_little_space_raises_an_alarm(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 100

    class Usage:
        total = 1 << 40

        @property
        def free(self) -> int:
            return free

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage())
    levels: dict[str, Any] = {"disk_free_min": 50, "disk_free_clear": 80}
    async with started(component(server, redis_url=None, **levels)) as alarm:
        assert await alarm.check() is None
        free = 49
        await alarm.look()
        assert str(server.dir) in (await alarm.check() or "")
        key = ("value", "disk", str(server.dir))
        assert numbers(await alarm.metrics())[key] == 49
        free = 60
        await alarm.look()
        assert await alarm.check() is not None
        free = 80
        await alarm.look()
        assert await alarm.check() is None


async def test_only_the_disk_of_the_embedded_server_is_watched_and_those_named(
    server: Server,
) -> None:
    async with started(component(server, directory=("/",))) as alarm:
        disks = {key[2] for key in numbers(await alarm.metrics()) if key[:2] == ("value", "disk")}
        assert disks == {"/"}


async def test_a_long_queue_stops_its_own_producers(server: Server) -> None:
    async with started(component(server, queue_length=100)), opened_store(server.url) as store:
        (published,) = await store.run(read_alarms())
        assert (published.subject, published.value) == ("gomq:long", 100)


@pytest.mark.parametrize(
    ("wanted", "redis_url", "stops"),
    [("auto", None, True), ("auto", "own", False), ("on", "own", True), ("off", None, False)],
)
async def test_producers_are_stopped_where_the_settings_say_so(
    server: Server, wanted: str, redis_url: str | None, stops: bool
) -> None:
    found = component(server, redis_url=redis_url, stop_producers=wanted, queue_length=100)
    async with started(found), opened_store(server.url) as store:
        published = await store.run(read_alarms())
        assert bool(published) is stops
        assert found.alarms


async def test_alarms_end_when_the_component_stops(server: Server) -> None:
    async with opened_store(server.url) as store:
        async with started(component(server, queue_length=100)):
            assert await store.run(read_alarms())
        assert await store.run(read_alarms()) == ()


async def test_the_component_raises_an_alarm_by_polling(server: Server) -> None:
    queues = {"gomq:a": 1}
    found = component(server, queue_length=100)
    found._lengths = levels_of(queues)
    async with started(found):
        watching = eventually_async(lambda: bool(found.alarms), within_s=20)
        queues["gomq:a"] = 100
        running = asyncio.ensure_future(found.watch())
        try:
            await watching
        finally:
            running.cancel()


async def test_an_alarm_degrades_the_health_and_is_no_failure(server: Server) -> None:
    health = ProcessHealth()
    async with started(component(server, queue_length=100)) as alarm:
        health.expect([alarm])
        health.started(alarm)
        status = (await health.look())["alarm"]
        assert (status.ok, status.degraded) == (True, True)
        assert "gomq:long" in status.why


async def test_a_lost_server_is_logged_once_and_alarms_are_kept(
    private_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with started(component(private_server, queue_length=100)) as alarm:
        private_server.kill()
        for _ in range(3):
            await alarm.look()
        assert alarm.alarms
    lines = [
        each.getMessage() for each in caplog.records if "cannot be watched" in each.getMessage()
    ]
    assert len(lines) == len({line.split(" cannot")[0] for line in lines}) == 2
