"""Detects that the server's clock was set back, by comparing it with the local monotonic clock."""

from __future__ import annotations

from math import inf
from time import monotonic

from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.store.aio import AsyncStore

# A server clock that falls behind ours by more than this between two receives was set back. A late
# reply looks the same, and costs one scan of the hidden messages.
STEP_MS = 1000


class ServerClock:
    """Watches the clock of one queue's server."""

    def __init__(self, store: AsyncStore, keys: Keys, queue: str) -> None:
        """Start without a reference time: the clock may have been set back before."""
        self._store, self._keys, self._queue = store, keys, queue
        self._ahead_ms = inf

    async def watch(self, result: message_ops.ReceiveResult, vt: float) -> int:
        """Re-hide messages that a clock set back would keep hidden too long; return how many.

        *result* is that of the last receive, which hid messages for *vt* seconds.
        """
        now_ms = result.now_ms
        if result.messages:
            now_ms = result.messages[-1].visible_at - round(vt * 1000)
        if not now_ms:
            return 0
        ahead_ms, before_ms = now_ms - monotonic() * 1000, self._ahead_ms
        self._ahead_ms = ahead_ms
        if ahead_ms > before_ms - STEP_MS:
            return 0
        return await self._store.follow(queue_ops.rewind(self._keys, self._queue))
