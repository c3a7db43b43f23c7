"""ChasquiMQ's component of ``tambo serve``: leads queues, so that delayed and repeatable jobs run.

Clients and workers talk to Redis directly. A queue has one leader at a time, here or in a worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.leader.fleet import Fleet
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.errors import ComponentFailed, InvalidFormat, StoreError, TamboError
from tambomq.log import mask_url
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import ChasquiSettings
from tambomq.store.aio import AsyncStore
from tambomq.store.paced_plan import PacedPlan

SCAN_EVERY_S: Final = 2.0
"""Interval of the scan for new and deleted queues; longer if the server has very many keys."""
PAGES_PER_SCAN: Final = 250
"""A scan visits a quarter of a million keys; the next one continues where it ended."""
MAX_QUEUES: Final = 1000
"""One process leads at most this many queues, the first by name, unless settings name them."""
# Scan for at most a twentieth of the time: a server with very many keys has other work.
_IDLE_SHARE: Final = 20
_LONGEST_PAUSE_S: Final = 10.0
# Leaders release their locks at the end; an unavailable server must not delay the stop.
_RESIGN_WITHIN_S: Final = 3.0

_log = logging.getLogger(__name__)


class ChasquiComponent:
    """Leads the queues that *settings* name, or all on the server of *redis*."""

    name = "chasqui"

    def __init__(self, settings: ChasquiSettings, redis: StoreComponent) -> None:
        self._redis, self._named = redis, settings.queue
        self._store: AsyncStore | None = None
        self._fleet: Fleet | None = None
        self._leading: asyncio.Task[None] | None = None
        self._queue_scan = PacedPlan(admin_ops.queues, PAGES_PER_SCAN)
        self._warned_of_too_many = False

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The URL of the Redis server."""
        url = mask_url(self._redis.url)
        return (
            ServedEndpoint(self.name, url, "ChasquiMQ", f"tambo chasqui queues --redis-url {url}"),
        )

    async def start(self) -> None:
        """Start leading. Raises `ComponentFailed`."""
        # Two containers may have the same host name and the same pid.
        holder = (
            f"{CONSUMER_PREFIX}serve-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        )
        self._store = AsyncStore(self._redis.url)
        self._fleet = Fleet(self._store, holder)
        try:
            await self._scan(self._store)
        except TamboError as error:
            raise ComponentFailed(self.name, f"{error}: leave it out with --no-chasqui") from error
        self._leading = asyncio.create_task(self._fleet.run())

    async def watch(self) -> None:
        """Lead new queues, and release deleted ones."""
        store = self._open_store
        pause_s = SCAN_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            try:
                if not self._named:
                    await self._scan(store)
            except StoreError as error:
                _log.debug("cannot scan for queues: %s", error)
            took_s = time.monotonic() - began
            pause_s = max(SCAN_EVERY_S, min(_IDLE_SHARE * took_s, _LONGEST_PAUSE_S))

    async def check(self) -> None:
        """Check that the server accepts writes and every leader is running."""
        await self._redis.check()
        if problem := self._open_fleet.problem:
            raise ComponentFailed(self.name, problem)

    async def metrics(self) -> Sequence[Metric]:
        """Return the state of the leader; the numbers of queues are those of `QueuesComponent`."""
        fleet = self._open_fleet
        about = "Queues that this process leads or would lead."
        ahead = "This machine's clock, ahead of Redis's."
        return (
            Metric("led_queues", about, len(fleet.queues)),
            Metric("clock_ahead_seconds", ahead, fleet.clock_ahead_s),
        )

    async def stop(self) -> None:
        """Release the leader locks, so that others can lead."""
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        if self._fleet is not None:
            await self._fleet.close(_RESIGN_WITHIN_S)
        if self._store is not None:
            await self._store.close()

    @property
    def _open_store(self) -> AsyncStore:
        if self._store is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._store

    @property
    def _open_fleet(self) -> Fleet:
        if self._fleet is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._fleet

    async def _scan(self, store: AsyncStore) -> None:
        found = self._named or await self._queue_scan.go_on(store)
        if found is not None:
            self._lead(found if self._named else self._bounded(found))

    def _bounded(self, found: Sequence[str]) -> Sequence[str]:
        if len(found) > MAX_QUEUES and not self._warned_of_too_many:
            self._warned_of_too_many = True
            _log.warning(
                "there are %d queues, and the first %d are led: name the others to another process",
                len(found),
                MAX_QUEUES,
            )
        return found[:MAX_QUEUES]

    def _lead(self, queues: Iterable[str]) -> None:
        """Lead *queues* and no others."""
        fleet, wanted = self._open_fleet, dict.fromkeys(queues)
        for queue in [each for each in fleet.queues if each not in wanted]:
            fleet.release(queue)
        for queue in wanted:
            try:
                fleet.lead(Keys(queue))
            except InvalidFormat as error:
                _log.debug("%s", error)
