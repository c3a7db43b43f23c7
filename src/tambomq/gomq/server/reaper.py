"""`Reaper`: disconnects silent peers, and requeues the messages that only they were to receive."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import inf
from typing import Final

from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq.model import Options
from tambomq.gomq.ops import admin as admin_ops
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops.leave import ReapPage
from tambomq.store.aio import AsyncStore

# Checks per peer timeout: a silent peer is disconnected a sixth too late at worst.
CHECKS_PER_TIMEOUT: Final = 6
# With many consumers a check takes long: keep Redis busy for at most a twentieth of the time.
_IDLE_SHARE: Final = 20
# Scripts in one round trip.
_CHUNK: Final = 50

_log = logging.getLogger(__name__)


class Reaper:
    """Disconnects silent peers. Any number of servers may do so on the same Redis."""

    def __init__(self, store: AsyncStore, options: Options) -> None:
        """Store the settings; `run` starts the checks."""
        self._store, self._options = store, options
        self._ahead_s = inf
        """The clock of Redis minus this machine's monotonic clock, at the last check."""
        self.peers = 0
        """Peers disconnected so far."""
        self.returned = 0
        """Messages that were requeued so far."""

    async def run(self) -> None:
        """Check, for ever. Retries if Redis is unavailable."""
        # While no server was running, no peer could observe: wait a whole timeout first. The same
        # holds after Redis was unavailable, or its clock was set forward: all peers look silent.
        pause_s = self._options.peer_timeout_s
        with suppress(TamboError):
            await self._clock_was_set()
        while True:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            try:
                if await self._clock_was_set():
                    _log.warning("no peer is disconnected: the clock of Redis was set forward")
                    pause_s = self._options.peer_timeout_s
                    continue
                await self.check()
                took_s = time.monotonic() - began
                pause_s = max(
                    self._options.peer_timeout_s / CHECKS_PER_TIMEOUT, _IDLE_SHARE * took_s
                )
            except TamboError as error:
                _log.warning("no peer is disconnected: %s", error)
                pause_s = self._options.peer_timeout_s

    async def _clock_was_set(self) -> bool:
        """Return whether the clock of Redis has gained on ours by more than the pause of a check.

        A machine that slept together with Redis finds the same.
        """
        ahead_s = await self._store.run(admin_ops.server_s()) - time.monotonic()
        before_s, self._ahead_s = self._ahead_s, ahead_s
        return ahead_s - before_s > self._options.peer_timeout_s / CHECKS_PER_TIMEOUT

    async def check(self) -> None:
        """Disconnect the peers that are silent for longer than the peer timeout."""
        await self._settle()
        consumers = await self._store.follow(admin_ops.all_consumers())
        for first in range(0, len(consumers), _CHUNK):
            chunk = consumers[first : first + _CHUNK]
            outcomes = await self._store.outcomes(
                [leave_ops.reap_page(consumer, self._options) for consumer in chunk]
            )
            for consumer, outcome in zip(chunk, outcomes, strict=True):
                await self._reap_rest(consumer, outcome)

    async def _settle(self) -> None:
        """Settle the keys that other processes have left unsettled."""
        cursor = b"0"
        while True:
            cursor, keys = await self._store.run(leave_ops.unsettled(cursor))
            for key in keys:
                try:
                    self.returned += await self._store.follow(leave_ops.settle(key))
                except StoreUnavailable:
                    raise
                except TamboError as error:
                    _log.warning(
                        "messages of peers that left key %r are not requeued yet: %s",
                        key,
                        error,
                        extra={"key": key},
                    )
            if cursor == b"0":
                return

    async def _reap_rest(self, consumer: str, page: ReapPage | TamboError) -> None:
        try:
            if isinstance(page, TamboError):
                raise page
            if page.cursor == b"0" and not page.peers:
                return
            reaped = await self._store.follow(leave_ops.reap_on(consumer, self._options, page))
        except StoreUnavailable:
            raise
        except TamboError as error:
            _log.warning(
                "silent peers of consumer %r are not disconnected yet: %s",
                consumer,
                error,
                extra={"consumer": consumer},
            )
            return
        self.peers += reaped.peers
        self.returned += reaped.returned
        if reaped.peers:
            _log.info(
                "consumer %r: disconnected %d silent peers, requeued %d messages",
                consumer,
                reaped.peers,
                reaped.returned,
                extra={"consumer": consumer, "peers": reaped.peers, "count": reaped.returned},
            )
