"""The RSMQ component: checks, and dead-letters expired messages that nobody receives.

Clients talk to Redis directly, so nothing else is served.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tambomq.errors import ComponentFailed, QueueNotFound, StoreUnavailable, TamboError
from tambomq.journal import ops as journal_ops
from tambomq.journal.policy import DEFAULT_BOUNDS
from tambomq.log import mask_url
from tambomq.rsmq.keys import NAMESPACE, Keys, is_queue
from tambomq.rsmq.model import QueueBounds
from tambomq.rsmq.ops import bounds as bounds_ops
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.rsmq.ops.journal import journal_keys, policy_for_queue
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import CHECK_WITHIN_S
from tambomq.serve.metrics.queue_metrics import MAX_QUEUES
from tambomq.serve.store import StoreComponent
from tambomq.store import probe
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint

# The queue need not exist: QueueNotFound shows that the script works.
_PROBE: Final = "tambo.probe"
SWEEP_EVERY_S: Final = 5.0
"""How often queues are looked at that may have expired messages."""
# With many queues a look takes long: keep Redis busy for at most a twentieth of the time.
_IDLE_SHARE: Final = 20
_COUNTERS: Final = {
    "refused": "Messages refused because of a bound of their queue.",
    "overflowed": "Messages dead-lettered because their queue was full.",
    "expired": "Messages dead-lettered because they had expired.",
}

_log: Final = logging.getLogger(__name__)


class RsmqComponent:
    """RSMQ on the server of *redis*."""

    name = "rsmq"

    def __init__(self, redis: StoreComponent) -> None:
        self._redis, self._keys = redis, Keys()
        self._store: AsyncStore | None = None
        self._bounded: dict[str, QueueBounds] = {}
        self._unswept = set[str]()
        """Queues that could not be swept the last time."""

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        """The URL of the Redis server."""
        url = mask_url(self._redis.url)
        return (ServedEndpoint(self.name, url, "RSMQ", f"tambo rsmq queue list --redis-url {url}"),)

    async def start(self) -> None:
        """Check that its scripts run on this server. Raises `ComponentFailed`."""
        server = endpoint(self._redis.url).with_timeout(CHECK_WITHIN_S)
        self._store = AsyncStore(server, patience_s=0)
        try:
            await self._run_script()
        except TamboError as error:
            raise ComponentFailed(self.name, f"{error}: leave it out with --no-rsmq") from error

    async def watch(self) -> None:
        """Dead-letter expired messages of all queues, every `SWEEP_EVERY_S` seconds."""
        pause_s = SWEEP_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            try:
                await self._sweep()
            except TamboError as error:
                # The health check reports a server that is away.
                _log.warning("expired messages of RSMQ queues are not swept: %s", error)
            pause_s = max(SWEEP_EVERY_S, _IDLE_SHARE * (time.monotonic() - began))

    async def _sweep(self) -> None:
        store = self._open_store
        queues = [
            each for each in await store.run(queue_ops.list_queues(self._keys)) if is_queue(each)
        ]
        found = await store.outcomes([bounds_ops.read(self._keys, queue) for queue in queues])
        read = {
            queue: bounds
            for queue, bounds in zip(queues, found, strict=True)
            if isinstance(bounds, QueueBounds) and bounds.any
        }
        self._bounded = read
        self._unswept.intersection_update(read)
        for queue, bounds in read.items():
            if bounds.message_ttl_s > 0:
                await self._sweep_one(queue)

    async def _sweep_one(self, queue: str) -> None:
        store = self._open_store
        try:
            journal = await store.run(journal_ops.state(journal_keys(NAMESPACE, queue)))
            recorded = policy_for_queue(NAMESPACE, queue, DEFAULT_BOUNDS) if journal else None
            expired = await store.follow(bounds_ops.sweep(self._keys, queue, journal=recorded))
        except StoreUnavailable:
            raise
        except TamboError as error:
            # A damaged queue must not stop the others, nor fill the log.
            if queue not in self._unswept:
                _log.warning(
                    "expired messages of queue %r are not swept: %s",
                    *(queue, error),
                    extra={"queue": queue},
                )
            self._unswept.add(queue)
            return
        self._unswept.discard(queue)
        if expired:
            _log.info(
                "dead-lettered %d expired messages of queue %r",
                *(expired, queue),
                extra={"queue": queue, "count": expired},
            )

    async def check(self) -> None:
        """Check that the server accepts writes and runs one of the scripts."""
        await self._open_store.follow(probe.takes_writes())
        await self._run_script()

    async def _run_script(self) -> None:
        with suppress(QueueNotFound):
            await self._open_store.run(queue_ops.attributes(self._keys, _PROBE))

    async def metrics(self) -> Sequence[Metric]:
        """Return what bounds have done to the first queues that have any, at most 5 s old.

        The other numbers of queues are those of `QueuesComponent`.
        """
        return [
            Metric(name, about, getattr(bounds, name), "counter", (("queue", queue),))
            for name, about in _COUNTERS.items()
            for queue, bounds in sorted(self._bounded.items())[:MAX_QUEUES]
        ]

    async def stop(self) -> None:
        """Disconnect."""
        if self._store is not None:
            await self._store.close()

    @property
    def _open_store(self) -> AsyncStore:
        if self._store is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._store
