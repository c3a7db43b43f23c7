"""Reads the alarms once a second for a server that takes messages. It measures nothing itself."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tambomq.alarms.model import Alarm
from tambomq.alarms.ops import read_alarms
from tambomq.errors import AlarmRaised, StoreError, StoreUnavailable
from tambomq.store.aio import AsyncStore

LOOK_EVERY_S: Final = 1.0

_log = logging.getLogger(__name__)


class AlarmWatch:
    """The alarms on the server of *store*, at most `LOOK_EVERY_S` old while `run` runs.

    *protocol* is the one of the queues that are checked.
    """

    def __init__(self, store: AsyncStore, protocol: str) -> None:
        self._store, self._protocol = store, protocol
        self.alarms: tuple[Alarm, ...] = ()
        self.refused = 0
        """Messages that were refused because of an alarm."""
        self._problem = ""

    async def run(self) -> None:
        """Read the alarms for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Read the alarms now. If Redis cannot be asked, there are none: it refuses by itself."""
        try:
            self.alarms = await self._store.run(read_alarms())
        except StoreUnavailable:
            self.alarms = ()
        except StoreError as error:
            self.alarms = ()
            if self._problem != str(error):
                # Once: it may last, such as an ACL that does not allow it.
                self._problem = str(error)
                _log.warning("no alarm stops producers here: alarms cannot be read: %s", error)
        else:
            self._problem = ""

    def check(self, queue: str, count: int = 1) -> None:
        """Raise `AlarmRaised` if an alarm stops *queue*, which was to take *count* messages."""
        for alarm in self.alarms:
            if alarm.stops(f"{self._protocol}:{queue}"):
                self.refused += count
                raise AlarmRaised(alarm.text)


async def refuse_alarmed(store: AsyncStore, protocol: str, queue: str) -> None:
    """Read the alarms, and raise `AlarmRaised` if one of them stops *queue*.

    For a single message that a person sends: it costs a round trip.
    """
    watch = AlarmWatch(store, protocol)
    await watch.look()
    watch.check(queue)
