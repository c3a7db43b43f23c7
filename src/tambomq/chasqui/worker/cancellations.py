"""Listens for cancelled entries, so that a worker stops their handlers or never starts them.

The script that cancels a job ends it in Redis (`ops/cancel.py`), adds the entry to a stream, and
publishes a notification. Every worker of the queue reads the stream when it is notified, and every
five seconds in case a notification was lost; the one that has the job acts. It may learn that
an entry was cancelled before the read that delivers it has returned, so cancelled entries are
remembered for a minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from tambomq.chasqui.ops import cancel as cancel_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.clock import Deadline
from tambomq.errors import StoreRefused, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

# A message may be lost, with a connection that has broken unnoticed: so the stream is read anyway.
POLL_EVERY_S = 5.0
# An ACL may forbid the channel.
POLL_WITHOUT_CHANNEL_S = 0.25
SUBSCRIBE_AGAIN_S = 60.0
# After a connection broke, or the server could not be reached.
RECONNECT_S = 0.25
# A read that is under way brings its entries much sooner than this.
REMEMBER_S = 60.0


class CancellationListener:
    """Reads which entries were cancelled, and remembers the recent ones."""

    def __init__(self, store: AsyncStore, context: ConsumerContext, in_flight: InFlight) -> None:
        """Listening starts with `run`."""
        self._store, self._keys = store, context.keys
        self._log = with_fields(log, **context.log_fields)
        self._in_flight, self._after = in_flight, "0-0"
        self._reported_at: dict[str, float] = {}
        self._on_cancelled: Callable[[str], None] | None = None
        self.reasons: dict[str, str] = {}
        """The reason for each cancelled entry. Also read from the threads of handlers."""

    async def run(self, on_cancelled: Callable[[str], None]) -> None:
        """Listen until cancelled; call *on_cancelled* with each entry that is new."""
        self._on_cancelled = on_cancelled
        while True:
            try:
                async with self._store.listen(self._keys.cancels) as subscription:
                    while subscription.is_usable:
                        await self._poll()
                        await subscription.wait(POLL_EVERY_S)
            except StoreRefused as error:
                self._warn(error)
                await self._poll_often(Deadline(SUBSCRIBE_AGAIN_S))
            except Exception as error:  # noqa: BLE001  (also what a credential provider raises)
                self._warn(error)
            await asyncio.sleep(RECONNECT_S)

    async def among(self, lost: Iterable[str]) -> dict[str, str]:
        """Return which of the *lost* entries were cancelled and why; forget those."""
        try:
            await self._poll()
        except Exception as error:  # noqa: BLE001  (as in `run`)
            self._warn(error)
        known = self.reasons
        return {entry: known.pop(entry) for entry in lost if entry in known}

    async def _poll_often(self, until: Deadline) -> None:
        while not until.passed:
            try:
                await self._poll()
            except Exception as error:  # noqa: BLE001  (as in `run`)
                self._warn(error)
            await asyncio.sleep(POLL_WITHOUT_CHANNEL_S)

    async def _poll(self) -> None:
        found: list[tuple[str, str, str]] | None = None
        while found is None or len(found) == cancel_ops.MAX_LISTED:
            found = await self._store.run(cancel_ops.cancelled_since(self._keys, self._after))
            for id, entry, reason in found:
                self._after = id
                if entry not in self.reasons:
                    self._note(entry, reason)
        if self._reported_at:
            self._forget_old()

    def _note(self, entry: str, reason: str) -> None:
        self.reasons[entry], self._reported_at[entry] = reason, time.monotonic()
        if self._on_cancelled is not None:
            self._on_cancelled(entry)

    def _warn(self, error: Exception) -> None:
        self._log.warning(
            "cannot listen for cancelled jobs of queue %r: %s",
            *(self._keys.queue, error),
            exc_info=not isinstance(error, TamboError),
        )

    def _forget_old(self) -> None:
        """Forget old entries that this worker does not hold."""
        before, held = time.monotonic() - REMEMBER_S, self._in_flight.entries
        old = [
            entry for entry, at in self._reported_at.items() if at < before and entry not in held
        ]
        for entry in old:
            del self._reported_at[entry]
            self.reasons.pop(entry, None)
