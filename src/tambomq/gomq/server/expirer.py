"""`Expirer`: moves messages that waited too long in a main queue to the key of its dead letters."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq import keys
from tambomq.gomq.bulk import scan
from tambomq.gomq.ops import bounds as bounds_ops
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds
from tambomq.store.aio import AsyncStore

LOOK_EVERY_S: Final = 5.0
"""The longest pause between two scans; with a short TTL there are four scans per TTL."""
_SHORTEST_S: Final = 0.1
# With many keys a scan takes long: keep Redis busy for at most a twentieth of the time.
_IDLE_SHARE: Final = 20

_log = logging.getLogger(__name__)


class Expirer:
    """Scans all main queues, for one server. Several may share a Redis."""

    def __init__(
        self, store: AsyncStore, ttl_s: float, journal_bounds: JournalBounds = DEFAULT_BOUNDS
    ) -> None:
        """Store the settings; 0 is no TTL. *journal_bounds* are those of keys with a journal."""
        self._store, self._ttl_s, self._journal_bounds = store, ttl_s, journal_bounds
        self.expired = 0
        """Messages that became dead letters so far."""

    async def run(self) -> None:
        """Scan until cancelled; retry if Redis is unavailable. Without a TTL, end at once."""
        if not self._ttl_s:
            return
        pause_s = max(_SHORTEST_S, min(LOOK_EVERY_S, self._ttl_s / 4))
        while True:
            began = time.monotonic()
            try:
                await self.look()
            except TamboError as error:
                _log.warning("expired messages are not moved yet: %s", error)
            await asyncio.sleep(max(pause_s, _IDLE_SHARE * (time.monotonic() - began)))

    async def look(self) -> None:
        """Move all messages that have expired. Dead letters do not expire."""
        cursor = b"0"
        while True:
            cursor, found = await self._store.run(scan.queues(cursor))
            for key in found:
                if (dead := keys.dead_letters(key)) is not None:
                    await self._expire(key, dead)
            if cursor == b"0":
                return

    async def _expire(self, key: str, dead: str) -> None:
        try:
            moved = await self._store.follow(
                bounds_ops.expire(key, dead, self._ttl_s, self._journal_bounds)
            )
        except StoreUnavailable:
            raise
        except TamboError as error:
            _log.warning(
                "expired messages of key %r are not moved yet: %s",
                *(key, error),
                extra={"key": key},
            )
            return
        self.expired += moved
        if moved:
            _log.info(
                "key %r: moved %d expired messages to key %r",
                key,
                moved,
                dead,
                extra={"key": key, "count": moved},
            )
