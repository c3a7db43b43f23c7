"""ChasquiMQ's door: it leads queues, so that delayed and recurring jobs need no worker for that.

Clients and workers speak with Redis itself. One process leads a queue at a time, here or elsewhere.
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

from tambomq.chasqui import admin_ops
from tambomq.chasqui.fleet import Fleet
from tambomq.chasqui.job import JobCounts
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import OURS
from tambomq.errors import DoorFailed, InvalidFormat, StoreError, StoreUnavailable, TamboError
from tambomq.log import mask_url
from tambomq.serve.door import Endpoint, Metric
from tambomq.serve.health import Coalesced
from tambomq.serve.store import StoreDoor
from tambomq.settings import ChasquiSettings
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Outcome, Plan

LOOK_EVERY_S: Final = 2.0
"""A queue that comes or goes is noticed after so long, unless the server is full of other keys."""
PAGES_A_LOOK: Final = 250
"""A look goes through a quarter of a million keys; the next one goes on where it ended."""
MOST_QUEUES: Final = 1000
"""So many are led by one process, the first by name, unless they are named to it."""
SAMPLE_EVERY_S: Final = 5.0
# Looking takes a twentieth of the time at most: a server full of other keys has other work.
_IDLE_SHARE: Final = 20
_LONGEST_PAUSE_S: Final = 10.0
_CHUNK: Final = 50
# Leaders give up their locks on the way out; a server that is away would keep us waiting.
_RESIGN_WITHIN_S: Final = 3.0

_log = logging.getLogger(__name__)


class ChasquiDoor:
    """Leads the queues that *settings* name, or all that are found, on the server of *redis*."""

    name = "chasqui"

    def __init__(self, settings: ChasquiSettings, redis: StoreDoor) -> None:
        self._redis, self._named = redis, settings.queue
        self._store: AsyncStore | None = None
        self._fleet: Fleet | None = None
        self._leading: asyncio.Task[None] | None = None
        self._search = _Search()
        self._told_of_too_many = False
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The Redis server, as ChasquiMQ's users name it."""
        url = mask_url(self._redis.url)
        return (Endpoint(self.name, url, "ChasquiMQ", f"tambo chasqui queues --redis-url {url}"),)

    async def start(self) -> None:
        """Begin to lead. Raises `DoorFailed`."""
        # Two containers may have the same host name and the same pid.
        holder = f"{OURS}serve-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._store = AsyncStore(self._redis.url)
        self._fleet = Fleet(self._store, holder)
        try:
            await self._look(self._store)
        except TamboError as error:
            raise DoorFailed(self.name, f"{error}: leave it out with --no-chasqui") from error
        self._leading = asyncio.create_task(self._fleet.run())

    async def watch(self) -> None:
        """Lead the queues that come, and no more those that go."""
        store = self._open_store
        pause_s = LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            try:
                if not self._named:
                    await self._look(store)
            except StoreError as error:
                _log.debug("cannot look for queues: %s", error)
            took_s = time.monotonic() - began
            pause_s = max(LOOK_EVERY_S, min(_IDLE_SHARE * took_s, _LONGEST_PAUSE_S))

    async def check(self) -> None:
        """See whether the server takes writes and every leader goes on."""
        await self._redis.check()
        if problem := self._open_fleet.problem:
            raise DoorFailed(self.name, problem)

    async def metrics(self) -> Sequence[Metric]:
        """Return what is in the queues that are led, as it was a few seconds ago at most."""
        return await self._sampled.get()

    async def stop(self) -> None:
        """Let others lead."""
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
            raise DoorFailed(self.name, "it is not open")
        return self._store

    @property
    def _open_fleet(self) -> Fleet:
        if self._fleet is None:
            raise DoorFailed(self.name, "it is not open")
        return self._fleet

    async def _look(self, store: AsyncStore) -> None:
        found = self._named or await self._search.go_on(store)
        if found is not None:
            self._lead(found if self._named else self._bounded(found))

    def _bounded(self, found: Sequence[str]) -> Sequence[str]:
        if len(found) > MOST_QUEUES and not self._told_of_too_many:
            self._told_of_too_many = True
            _log.warning(
                "there are %d queues, and the first %d are led: name the others to another process",
                len(found),
                MOST_QUEUES,
            )
        return found[:MOST_QUEUES]

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
        told = [Metric("queues", "Queues that this process leads or would lead.", len(queues))]
        apart = self._open_fleet.clock_ahead_s
        told.append(Metric("clock_ahead_seconds", "This machine's clock, ahead of Redis's.", apart))
        for first in range(0, len(queues), _CHUNK):
            chunk = queues[first : first + _CHUNK]
            plans = [store.follow(admin_ops.counts(Keys(queue), GROUP)) for queue in chunk]
            found = await asyncio.gather(*plans, return_exceptions=True)
            for queue, counts in zip(chunk, found, strict=True):
                if isinstance(counts, JobCounts):
                    told += _numbers(queue, counts)
                # A damaged one is left out; a server that is away has no numbers at all.
                elif isinstance(counts, StoreUnavailable) or not isinstance(counts, TamboError):
                    raise counts
        return told


class _Search:
    """Looks for queues, a bounded part of the server's keys at a time."""

    def __init__(self) -> None:
        self._plan: Plan[list[str]] | None = None
        self._outcomes: list[Outcome] | None = None

    async def go_on(self, store: AsyncStore) -> list[str] | None:
        """Return all names once everything was looked at, and begin anew. Raises `StoreError`."""
        for _ in range(PAGES_A_LOOK):
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
