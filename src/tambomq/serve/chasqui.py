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
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tambomq.chasqui.job import JobCounts
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.leader.fleet import Fleet
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX
from tambomq.errors import ComponentFailed, InvalidFormat, StoreError, StoreUnavailable, TamboError
from tambomq.log import mask_url
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import Coalesced
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import ChasquiSettings
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Outcome, Plan

SCAN_EVERY_S: Final = 2.0
"""Interval of the scan for new and deleted queues; longer if the server has very many keys."""
PAGES_PER_SCAN: Final = 250
"""A scan visits a quarter of a million keys; the next one continues where it ended."""
MAX_QUEUES: Final = 1000
"""One process leads at most this many queues, the first by name, unless settings name them."""
SAMPLE_EVERY_S: Final = 5.0
# Scan for at most a twentieth of the time: a server with very many keys has other work.
_IDLE_SHARE: Final = 20
_LONGEST_PAUSE_S: Final = 10.0
_CHUNK: Final = 50
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
        self._queue_scan = _QueueScan()
        self._warned_of_too_many = False
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

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
        """Return the state of the led queues, at most `SAMPLE_EVERY_S` old."""
        return await self._sampled.get()

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

    async def _sample(self) -> Sequence[Metric]:
        store, queues = self._open_store, self._open_fleet.queues
        metrics = [Metric("queues", "Queues that this process leads or would lead.", len(queues))]
        ahead_s = self._open_fleet.clock_ahead_s
        metrics.append(
            Metric("clock_ahead_seconds", "This machine's clock, ahead of Redis's.", ahead_s)
        )
        for first in range(0, len(queues), _CHUNK):
            chunk = queues[first : first + _CHUNK]
            plans = [store.follow(admin_ops.counts(Keys(queue), GROUP)) for queue in chunk]
            found = await asyncio.gather(*plans, return_exceptions=True)
            for queue, counts in zip(chunk, found, strict=True):
                if isinstance(counts, JobCounts):
                    metrics += _numbers(queue, counts)
                # Skip damaged queues; an unavailable server fails the sample.
                elif isinstance(counts, StoreUnavailable) or not isinstance(counts, TamboError):
                    raise counts
        return metrics


class _QueueScan:
    """Scans for queues, a bounded part of the server's keys at a time."""

    def __init__(self) -> None:
        self._plan: Plan[list[str]] | None = None
        self._outcomes: list[Outcome] | None = None

    async def go_on(self, store: AsyncStore) -> list[str] | None:
        """Continue; return all names at the end of a scan, else `None`. Raises `StoreError`."""
        for _ in range(PAGES_PER_SCAN):
            if self._plan is None:
                self._plan, self._outcomes = admin_ops.queues(), None
            try:
                calls = self._plan.send(self._outcomes)  # type: ignore[arg-type]
            except StopIteration as end:
                self._plan = None
                found: list[str] = end.value
                return found
            except TamboError:
                self._plan = None
                raise
            self._outcomes = await store.outcomes(list(calls))
        return None


def _numbers(queue: str, found: JobCounts) -> Iterator[Metric]:
    about = "Jobs of a queue, by where they are."
    states = {
        "waiting": found.waiting, "active": found.active, "delayed": found.delayed,
        "dlq": found.dead, "repeatable": found.repeatable,
    }  # fmt: skip
    for state, count in states.items():
        yield Metric("jobs", about, count, labels=(("queue", queue), ("state", state)))
