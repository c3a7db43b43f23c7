"""Disconnects peers that have been silent for too long; what only they were owed is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import inf
from typing import Final

from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq import admin_ops, leave_ops
from tambomq.gomq.leave_ops import Page
from tambomq.gomq.model import Options
from tambomq.store.aio import AsyncStore

# A silent peer outlives its time by a sixth at worst.
LOOKS: Final = 6
# With many consumers a look takes its time: Redis is ours for no more than a twentieth of it.
_REST: Final = 20
# So many scripts are asked for in one trip.
_CHUNK: Final = 50

_log = logging.getLogger(__name__)


class Reaper:
    """Looks for silent peers; any number of servers may do so on the same Redis."""

    def __init__(self, store: AsyncStore, options: Options) -> None:
        """Nothing is looked for before `run`."""
        self._store, self._options = store, options
        self._ahead_s = inf
        """By how much the clock of Redis was ahead of this machine's monotonic one."""
        self.peers = 0
        """How many were disconnected."""
        self.returned = 0
        """How many messages went back to their main queues."""

    async def run(self) -> None:
        """Look, for ever. Survives any absence of the server."""
        # While no server ran nobody could observe: all get their time once more. So it is when
        # Redis was away, or its clock was set forward: who was heard a moment ago looks silent.
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
                await self.look()
                took_s = time.monotonic() - began
                pause_s = max(self._options.peer_timeout_s / LOOKS, _REST * took_s)
            except TamboError as error:
                _log.warning("no peer is disconnected: %s", error)
                pause_s = self._options.peer_timeout_s

    async def _clock_was_set(self) -> bool:
        """Whether the clock of Redis went ahead of ours since the last time, by a look's pause.

        A machine that slept, and Redis with it, finds the same.
        """
        ahead_s = await self._store.run(admin_ops.server_s()) - time.monotonic()
        before_s, self._ahead_s = self._ahead_s, ahead_s
        return ahead_s - before_s > self._options.peer_timeout_s / LOOKS

    async def look(self) -> None:
        """Disconnect those whose time is over."""
        await self._settle()
        consumers = await self._store.follow(admin_ops.everyone())
        for first in range(0, len(consumers), _CHUNK):
            chunk = consumers[first : first + _CHUNK]
            outcomes = await self._store.outcomes(
                [leave_ops.reap_page(consumer, self._options) for consumer in chunk]
            )
            for consumer, outcome in zip(chunk, outcomes, strict=True):
                await self._go_on(consumer, outcome)

    async def _settle(self) -> None:
        """Go on where somebody else has stopped."""
        cursor = b"0"
        while True:
            cursor, keys = await self._store.run(leave_ops.unsettled(cursor))
            for key in keys:
                try:
                    self.returned += await self._store.follow(leave_ops.settle(key))
                except StoreUnavailable:
                    raise
                except TamboError as error:
                    _log.warning("what leavers of key %r were owed stays aside: %s", key, error)
            if cursor == b"0":
                return

    async def _go_on(self, consumer: str, page: Page | TamboError) -> None:
        try:
            if isinstance(page, TamboError):
                raise page
            if page.cursor == b"0" and not page.peers:
                return
            reaped = await self._store.follow(leave_ops.reap_on(consumer, self._options, page))
        except StoreUnavailable:
            raise
        except TamboError as error:
            _log.warning("the peers of consumer %r stay: %s", consumer, error)
            return
        self.peers += reaped.peers
        self.returned += reaped.returned
        if reaped.peers:
            _log.info(
                "consumer %r: %d silent peers are gone, %d messages are back in main queues",
                consumer,
                reaped.peers,
                reaped.returned,
            )
