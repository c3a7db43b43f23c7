"""The base of promoter and scheduler: a periodic task that one process at a time runs for a queue.

The process that holds the lock leads. The lock expires unless it is renewed, so another process
takes over soon after a leader dies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.clock import backoff_delays
from tambomq.errors import StoreError, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

# A standby tries to acquire the lock this often.
STANDBY_POLL_S = 0.5
# A failure that repeats is logged at most this often.
LOG_EVERY_S = 60.0


class Leader:
    """Takes turns until closed; a subclass defines `turn` and `role`."""

    role = ""

    def __init__(self, store: AsyncStore, config: LeaderConfig, lock: str) -> None:
        """Prepare only; `run` starts the work."""
        self._store, self._config, self._lock = store, config, lock
        self._log = with_fields(log, queue=config.keys.queue, role=self.role, holder=config.holder)
        self._closed = asyncio.Event()
        self._last_logged = ("", 0.0)
        self.is_leader = False
        """Whether it held the lock at its last turn."""
        self.refusal = ""
        """Why it must not lead, such as a wrong clock; empty if it may."""
        self.clock_ahead_s = 0.0
        """Lower bound of this machine's clock lead over the server's, in seconds."""

    async def turn(self) -> float:
        """Do what is due; return the seconds to wait before the next turn."""
        raise NotImplementedError

    async def run(self) -> None:
        """Lead or stand by until `close`. Keeps retrying while the server is unreachable."""
        wait = backoff_delays(longest_s=1.0)
        try:
            while not self._closed.is_set():
                try:
                    pause_s = await self.turn()
                    wait = backoff_delays(longest_s=1.0)
                except Exception as error:  # noqa: BLE001  (one turn's bug ends no leader)
                    self._log_failure(error)
                    pause_s = next(wait)
                await self._sleep(pause_s)
        finally:
            if self.is_leader:
                with suppress(StoreError):
                    await self.resign()

    async def resign(self) -> None:
        """Release the lock, so that a standby can acquire it at once."""
        await self._store.run(leader_ops.resign(self._config, self._lock))

    def close(self) -> None:
        """Stop `run`, which releases the lock."""
        self._closed.set()

    def _log_failure(self, error: Exception) -> None:
        text, now = str(error), time.monotonic()
        last_text, logged_at = self._last_logged
        # Data that a client has damaged fails at every turn, and must not fill the disk with logs.
        if text == last_text and now - logged_at < LOG_EVERY_S:
            return
        self._last_logged = (text, now)
        queue, surprise = self._config.keys.queue, not isinstance(error, TamboError)
        self._log.warning("the %s of queue %r: %s", self.role, queue, error, exc_info=surprise)

    def _set_leading(self, leads: bool) -> None:
        if leads != self.is_leader:
            self.is_leader = leads
            verb = "leads" if leads else "leads no more"
            queue, holder = self._config.keys.queue, self._config.holder
            self._log.info("the %s of queue %r: %s %s", self.role, queue, holder, verb)

    async def _sleep(self, for_s: float) -> None:
        if for_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(for_s):
                    await self._closed.wait()
        else:
            await asyncio.sleep(0)
