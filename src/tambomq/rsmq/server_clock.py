"""Watches for the server's clock being set back, by this machine's monotonic one."""

from __future__ import annotations

from math import inf
from time import monotonic

from tambomq.rsmq import ops
from tambomq.rsmq.keys import Keys
from tambomq.store.aio import AsyncStore

# A server's clock that falls behind ours by more, between two receives, was set back. A reply that
# was late looks the same, and costs a look at the messages that are hidden.
STEP_MS = 1000


class ServerClock:
    """The clock of one queue's server."""

    def __init__(self, store: AsyncStore, keys: Keys, queue: str) -> None:
        """Know nothing: the clock may have been set back before."""
        self._store, self._keys, self._queue = store, keys, queue
        self._ahead_ms = inf

    async def watch(self, haul: ops.Haul, vt: float) -> int:
        """Hide messages anew that a clock which was set back would keep hidden; return how many.

        *haul* is what the last receive brought, which hides for *vt* seconds.
        """
        now_ms = haul.now_ms
        if haul.messages:
            now_ms = haul.messages[-1].visible_at - round(vt * 1000)
        if not now_ms:
            return 0
        ahead_ms, before_ms = now_ms - monotonic() * 1000, self._ahead_ms
        self._ahead_ms = ahead_ms
        if ahead_ms > before_ms - STEP_MS:
            return 0
        return await self._store.follow(ops.rewind(self._keys, self._queue))
