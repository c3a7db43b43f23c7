"""Measures memory, free disk space and queue lengths for the alarms. Decides nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tambomq.alarms.model import AlarmLimits, AlarmValue, Kind
from tambomq.alarms.ops import MemoryReport, memory
from tambomq.errors import SettingsError
from tambomq.settings.load import AlarmsSettings
from tambomq.store.aio import AsyncStore

Lengths = Callable[[], Awaitable[Mapping[str, int]]]
"""Returns the messages of each queue, by ``<protocol>:<name>``."""

_DEFAULT_CLEAR: Final = 0.9


def check_levels(settings: AlarmsSettings) -> None:
    """Raise `SettingsError` if an alarm would be cleared at a worse value than it is raised at."""
    each = settings
    if each.memory_low_percent > each.memory_high_percent > 0:
        raise _wrong("memory_low_percent", "memory_high_percent", "at most")
    if each.disk_free_min > 0 and each.disk_free_clear < each.disk_free_min:
        raise _wrong("disk_free_clear", "disk_free_min", "at least")
    if 0 < each.queue_length < each.queue_length_clear:
        raise _wrong("queue_length_clear", "queue_length", "at most")


class AlarmSampler:
    """Takes readings of one server, of the disks of *directories*, and of queues by *lengths*."""

    def __init__(
        self,
        settings: AlarmsSettings,
        store: AsyncStore,
        directories: Sequence[Path],
        lengths: Lengths | None = None,
    ) -> None:
        self._settings, self._store, self._directories = settings, store, directories
        self._lengths = lengths

    async def memory_report(self) -> MemoryReport:
        """Return the server's own report. Raises `StoreError`."""
        return await self._store.run(memory())

    async def take(self, kind: Kind) -> list[AlarmValue]:
        """Return the readings of *kind*; none if that alarm is off. Raises `StoreError`."""
        if kind == "memory":
            return await self._memory()
        if kind == "disk":
            return await self._disks()
        return await self._queues()

    async def _memory(self) -> list[AlarmValue]:
        high, low = self._settings.memory_high_percent, self._settings.memory_low_percent
        if not high:
            return []
        found = await self.memory_report()
        # With eviction the server makes space by itself: it is always full, and takes all sends.
        if not found.limit or found.policy not in ("", "noeviction"):
            return []
        limits = AlarmLimits(found.limit * high / 100, found.limit * low / 100)
        return [AlarmValue("memory", "", found.used, limits)]

    async def _disks(self) -> list[AlarmValue]:
        settings = self._settings
        if not settings.disk_free_min:
            return []
        readings = []
        for each in self._directories:
            # A directory that does not exist yet, such as a lake's, is no reason for an alarm.
            with suppress(OSError):
                usage = await asyncio.to_thread(shutil.disk_usage, each)
                # Of a small disk a part: else its alarm could never be cleared.
                raise_at = min(settings.disk_free_min, usage.total // 4)
                limits = AlarmLimits(raise_at, min(settings.disk_free_clear, usage.total // 2))
                readings.append(AlarmValue("disk", str(each), usage.free, limits))
        return readings

    async def _queues(self) -> list[AlarmValue]:
        high = self._settings.queue_length
        if not high or self._lengths is None:
            return []
        limits = AlarmLimits(high, self._settings.queue_length_clear or high * _DEFAULT_CLEAR)
        found = await self._lengths()
        return [
            AlarmValue("queue_length", queue, length, limits) for queue, length in found.items()
        ]


def _wrong(key: str, other: str, relation: str) -> SettingsError:
    return SettingsError(f"{key} in [alarms] must be {relation} {other}")
