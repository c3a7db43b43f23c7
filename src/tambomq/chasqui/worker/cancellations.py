"""The cancelled entries that a worker has heard of: it stops their handlers, or never starts them.

A cancelled job has ended in Redis before a worker hears of it (`ops/cancel.py`). Each worker asks
four times a second for those that are new. It may hear of an entry before the read arrives that
delivers it, so that entries are remembered for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from tambomq.chasqui.ops import cancel as cancel_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.errors import TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

ASK_EVERY_S = 0.25
# A read that is under way brings its entries much sooner than this.
REMEMBER_S = 60.0


class CancellationPoller:
    """Asks which entries were cancelled, and remembers the latest."""

    def __init__(self, store: AsyncStore, context: ConsumerContext, in_flight: InFlight) -> None:
        """Nothing is asked before `run`."""
        self._store, self._keys = store, context.keys
        self._log = with_fields(log, **context.log_fields)
        self._in_flight, self._after = in_flight, "0-0"
        self._heard_at: dict[str, float] = {}
        self._on_cancelled: Callable[[str], None] | None = None
        self.reasons: dict[str, str] = {}
        """Why, for each cancelled entry. Also read from the threads of handlers."""

    async def run(self, on_cancelled: Callable[[str], None]) -> None:
        """Ask again and again; call *on_cancelled* with each entry that is new."""
        self._on_cancelled = on_cancelled
        while True:
            try:
                await self._ask()
            except TamboError as error:
                self._log.warning(
                    "cannot ask for cancelled jobs of queue %r: %s", self._keys.queue, error
                )
            await asyncio.sleep(ASK_EVERY_S)

    async def count(self, lost: Iterable[str]) -> int:
        """Return how many of the *lost* entries are lost because they were cancelled."""
        with suppress(TamboError):
            await self._ask()
        return sum(self.reasons.pop(entry, None) is not None for entry in lost)

    async def _ask(self) -> None:
        for id, entry, reason in await self._store.run(
            cancel_ops.cancelled_since(self._keys, self._after)
        ):
            self._after = id
            if entry not in self.reasons:
                self.reasons[entry], self._heard_at[entry] = reason, time.monotonic()
                if self._on_cancelled is not None:
                    self._on_cancelled(entry)
        if self._heard_at:
            self._forget_old()

    def _forget_old(self) -> None:
        """Forget entries of other workers, and those that have ended here."""
        before, held = time.monotonic() - REMEMBER_S, self._in_flight.entries
        old = [entry for entry, at in self._heard_at.items() if at < before and entry not in held]
        for entry in old:
            del self._heard_at[entry]
            self.reasons.pop(entry, None)
