"""What is measured, which alarms are off, and levels that contradict each other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tambomq.errors import SettingsError
from tambomq.serve.alarms.measure import AlarmSampler, check_levels
from tambomq.settings.load import AlarmsSettings
from tests.alarms.stores import opened_store
from tests.servers import Server

MIB = 1 << 20


async def no_queues() -> dict[str, int]:
    return {"rsmq:a": 3, "gomq:b": 40}


async def test_memory_is_compared_with_shares_of_maxmemory(private_server: Server) -> None:
    settings = AlarmsSettings(memory_high_percent=50, memory_low_percent=25)
    with redis.Redis.from_url(private_server.url) as db:
        async with opened_store(private_server.url) as store:
            measure = AlarmSampler(settings, store, ())
            assert await measure.take("memory") == []
            db.config_set("maxmemory", "64mb")
            (found,) = await measure.take("memory")
            assert (found.limits.raise_at, found.limits.clear_at) == (32 * MIB, 16 * MIB)
            assert 0 < found.value < 64 * MIB


async def test_a_server_that_evicts_is_never_full(private_server: Server) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory", "64mb")
        db.config_set("maxmemory-policy", "allkeys-lru")
        async with opened_store(private_server.url) as store:
            assert await AlarmSampler(AlarmsSettings(), store, ()).take("memory") == []


async def test_each_directory_has_a_reading_and_a_missing_one_has_none(tmp_path: Path) -> None:
    async with opened_store() as store:
        measure = AlarmSampler(AlarmsSettings(), store, (tmp_path, tmp_path / "missing"))
        (found,) = await measure.take("disk")
        assert found.subject == str(tmp_path)
        assert found.value > 0
        total = shutil.disk_usage(tmp_path).total
        assert found.limits.raise_at == min(256 * MIB, total // 4)
        assert found.limits.clear_at == min(512 * MIB, total // 2)


async def test_queues_are_measured_if_a_length_is_set(tmp_path: Path) -> None:
    async with opened_store() as store:
        measure = AlarmSampler(AlarmsSettings(queue_length=100), store, (), no_queues)
        first, second = await measure.take("queue_length")
        assert (first.subject, first.value, second.value) == ("rsmq:a", 3, 40)
        assert (first.limits.raise_at, first.limits.clear_at) == (100, 90)
        off = AlarmsSettings(memory_high_percent=0, disk_free_min=0)
        for kind in ("memory", "disk", "queue_length"):
            assert await AlarmSampler(off, store, (tmp_path,), no_queues).take(kind) == []


@pytest.mark.parametrize(
    ("levels", "key"),
    [
        ({"memory_low_percent": 95}, "memory_low_percent"),
        ({"disk_free_clear": 1}, "disk_free_clear"),
        ({"queue_length": 10, "queue_length_clear": 11}, "queue_length_clear"),
    ],
)
def test_levels_that_contradict_each_other_are_refused(levels: dict[str, Any], key: str) -> None:
    check_levels(AlarmsSettings())
    with pytest.raises(SettingsError, match=key):
        check_levels(AlarmsSettings(**levels))


def test_levels_of_alarms_that_are_off_do_not_matter() -> None:
    check_levels(AlarmsSettings(memory_high_percent=0, disk_free_min=0, disk_free_clear=0))


async def test_the_alarm_of_a_small_disk_can_be_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(100 * MIB, 70 * MIB))
    async with opened_store() as store:
        (found,) = await AlarmSampler(AlarmsSettings(), store, (tmp_path,)).take("disk")
    assert (found.limits.raise_at, found.limits.clear_at) == (25 * MIB, 50 * MIB)


class _Usage(NamedTuple):
    total: int
    free: int
