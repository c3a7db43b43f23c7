"""The alarm component: measures, decides, and lets the producers of this Redis know.

Raised alarms are kept in Redis, where GOMQ servers and the console look before they store. They
expire soon after this process has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tambomq.alarms.decisions import AlarmState, AlarmTransition
from tambomq.alarms.model import KINDS, Alarm, AlarmValue
from tambomq.alarms.ops import raise_alarms
from tambomq.errors import ComponentFailed, StoreError
from tambomq.ids import unique
from tambomq.serve.alarms.measure import AlarmSampler, Lengths, check_levels
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import CHECK_WITHIN_S
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import Settings
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint

# Alarms outlive a slow look, and end soon after the process that measures.
_TTL_LOOKS: Final = 5
_MIN_TTL_MS: Final = 5000

_log = logging.getLogger(__name__)


class AlarmComponent:
    """Raises and clears the alarms of the server of *redis*, as *settings* say.

    *lengths* gives the queues, for alarms of their lengths.
    """

    name = "alarm"
    endpoints: Sequence[ServedEndpoint] = ()

    def __init__(
        self, settings: Settings, redis: StoreComponent, lengths: Lengths | None = None
    ) -> None:
        check_levels(settings.alarms)
        self._settings, self._redis, self._lengths = settings.alarms, redis, lengths
        is_embedded = settings.server.redis_url is None
        wanted = settings.alarms.stop_producers
        self._stops_producers = is_embedded if wanted == "auto" else wanted == "on"
        own = (settings.server.data_dir,) if is_embedded else ()
        self._directories = (*own, *map(Path, settings.alarms.directory))
        self._board, self._source = AlarmState(), unique()
        self._readings: dict[str, Sequence[AlarmValue]] = {}
        self._unmeasured = set[str]()
        self._is_published = False
        self._store: AsyncStore | None = None

    @property
    def alarms(self) -> Sequence[Alarm]:
        """The alarms that are raised now."""
        return self._board.alarms

    async def start(self) -> None:
        """Look for the first time, before servers that refuse messages start."""
        server = endpoint(self._redis.url).with_timeout(CHECK_WITHIN_S)
        self._store = AsyncStore(server, patience_s=0)
        self._measure = AlarmSampler(self._settings, self._store, self._directories, self._lengths)
        await self.look()

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(self._settings.every_s)
            await self.look()

    async def check(self) -> str | None:
        """Return the alarms that are raised: the component serves, but producers are stopped."""
        return "; ".join(f"{each.text}: {each.advice}" for each in self.alarms) or None

    async def metrics(self) -> Sequence[Metric]:
        """Return what was measured last, and whether it raises an alarm."""
        raised = dict.fromkeys(KINDS, 0)
        for alarm in self.alarms:
            raised[alarm.kind] += 1
        about = "Alarms that are raised."
        metrics = [
            Metric("raised", about, count, labels=(("kind", kind),))
            for kind, count in raised.items()
        ]
        readings = [each for kind in KINDS for each in self._shown(kind)]
        about = "Measured values: bytes used, bytes free, messages of the longest queue."
        metrics += [Metric("value", about, each.value, labels=_labels(each)) for each in readings]
        about = "The values at which alarms are raised."
        metrics += [
            Metric("limit", about, each.limits.raise_at, labels=_labels(each)) for each in readings
        ]
        return metrics

    async def stop(self) -> None:
        """Clear the alarms of this process, and disconnect."""
        if self._store is None:
            return
        try:
            if self._is_published:
                await self._store.run(raise_alarms(self._source, (), _MIN_TTL_MS))
        except StoreError as error:
            _log.debug("alarms expire by themselves: %s", error)
        finally:
            await self._store.close()

    async def look(self) -> None:
        """AlarmSampler everything once, and publish what is raised."""
        for kind in KINDS:
            try:
                readings = await self._measure.take(kind)
            except StoreError as error:
                self._log_unmeasured(kind, error)
                continue
            self._unmeasured.discard(kind)
            self._readings[kind] = readings
            for change in self._board.update(kind, readings):
                self._log_change(change)
        await self._publish()

    async def _publish(self) -> None:
        if not self._stops_producers or not (self.alarms or self._is_published):
            return
        ttl_ms = max(_MIN_TTL_MS, round(_TTL_LOOKS * self._settings.every_s * 1000))
        try:
            await self._open_store.run(raise_alarms(self._source, self.alarms, ttl_ms))
        except StoreError as error:
            self._log_unmeasured("the alarms in Redis", error)
        else:
            self._unmeasured.discard("the alarms in Redis")
            self._is_published = bool(self.alarms)

    def _log_change(self, change: AlarmTransition) -> None:
        alarm, fields = change.alarm, {"alarm": change.alarm.kind, "subject": change.alarm.subject}
        if change.is_raised:
            are = "are" if self._stops_producers else "are not"
            text = "alarm: %s; producers %s stopped: %s"
            _log.warning(text, alarm.text, are, alarm.advice, extra=fields)
        else:
            _log.warning("the alarm is cleared: %s", alarm.values, extra=fields)

    def _log_unmeasured(self, what: str, error: StoreError) -> None:
        """Log once until it works again that *what* cannot be asked for."""
        if what not in self._unmeasured:
            self._unmeasured.add(what)
            _log.info("%s cannot be watched for now: %s", what, error)

    def _shown(self, kind: str) -> Sequence[AlarmValue]:
        """Return the readings with metrics: of the queues only the longest."""
        readings = self._readings.get(kind, ())
        if kind != "queue_length" or not readings:
            return readings
        longest = max(readings, key=lambda each: each.value)
        return (AlarmValue(longest.kind, "", longest.value, longest.limits),)

    @property
    def _open_store(self) -> AsyncStore:
        if self._store is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._store


def _labels(reading: AlarmValue) -> tuple[tuple[str, str], ...]:
    return (("kind", reading.kind), ("subject", reading.subject))
