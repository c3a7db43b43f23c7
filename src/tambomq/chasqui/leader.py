"""A duty that one process at a time does for a queue, again and again.

Whoever holds the lock leads. The lock runs out unless it is renewed, so a
leader that dies has a successor before its time is over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from tambomq.chasqui import lead_ops
from tambomq.chasqui.lead_ops import Office
from tambomq.clock import pauses
from tambomq.errors import StoreError, TamboError
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

# Who does not lead looks so often whether it may.
PEER_LOOK_S = 0.5
# The same failure is told so often, however often it happens.
TELL_EVERY_S = 60.0


class Leader:
    """Does its duty until closed; `turn` says what it is."""

    duty = ""

    def __init__(self, store: AsyncStore, office: Office, lock: str) -> None:
        """Nothing is done before `run`."""
        self._store, self._office, self._lock = store, office, lock
        self._closed = asyncio.Event()
        self._told = ("", 0.0)
        self.is_leader = False
        """Whether it led when it last looked."""
        self.refusal = ""
        """Why it does not lead although it could; empty if nothing keeps it from that."""
        self.clock_ahead_s = 0.0
        """By how much the clock of this machine was ahead of the server's, at least."""

    async def turn(self) -> float:
        """Do what is due; return how many seconds to wait before the next turn."""
        raise NotImplementedError

    async def run(self) -> None:
        """Lead, or wait for the chance to, until `close`. Survives any absence of the server."""
        wait = pauses(longest_s=1.0)
        try:
            while not self._closed.is_set():
                try:
                    pause_s = await self.turn()
                    wait = pauses(longest_s=1.0)
                except Exception as error:  # noqa: BLE001  (a bug of one turn ends no leader; it is told)
                    self._tell(error)
                    pause_s = next(wait)
                await self._sleep(pause_s)
        finally:
            if self.is_leader:
                with suppress(StoreError):
                    await self.resign()

    async def resign(self) -> None:
        """Lead no more, so that another can at once."""
        await self._store.run(lead_ops.resign(self._office, self._lock))

    def close(self) -> None:
        """Let `run` end, and another lead."""
        self._closed.set()

    def _tell(self, error: Exception) -> None:
        text, now = str(error), time.monotonic()
        # What one client can damage must not fill the disk with what is said of it.
        if text == self._told[0] and now - self._told[1] < TELL_EVERY_S:
            return
        self._told = (text, now)
        queue, surprise = self._office.keys.queue, not isinstance(error, TamboError)
        log.warning("the %s of queue %r: %s", self.duty, queue, error, exc_info=surprise)

    def _leads(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            verb = "leads" if leads else "leads no more"
            queue, holder = self._office.keys.queue, self._office.holder
            log.info("the %s of queue %r: %s %s", self.duty, queue, holder, verb)

    async def _sleep(self, for_s: float) -> None:
        if for_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(for_s):
                    await self._closed.wait()
        else:
            await asyncio.sleep(0)
