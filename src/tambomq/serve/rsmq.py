"""The RSMQ component: checks and metrics only, since clients talk to Redis directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from tambomq.errors import (
    ComponentFailed,
    InvalidFormat,
    QueueNotFound,
    StoreUnavailable,
    TamboError,
)
from tambomq.log import mask_url
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import QueueAttributes
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import CHECK_WITHIN_S, Coalesced
from tambomq.serve.store import StoreComponent
from tambomq.store import probe
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.endpoint import endpoint

SAMPLE_EVERY_S: Final = 5.0
MAX_QUEUES: Final = 1000
"""Metrics cover at most this many queues, the first by name."""
_CHUNK: Final = 100
# The queue need not exist: QueueNotFound shows that the script works.
_PROBE: Final = "tambo.probe"


class RsmqComponent:
    """RSMQ on the server of *redis*."""

    name = "rsmq"

    def __init__(self, redis: StoreComponent) -> None:
        self._redis, self._keys = redis, Keys()
        self._store: AsyncStore | None = None
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

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
        """Do nothing: there is nothing to keep running."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Check that the server accepts writes and runs one of the scripts."""
        await self._open_store.follow(probe.takes_writes())
        await self._run_script()

    async def _run_script(self) -> None:
        with suppress(QueueNotFound):
            await self._open_store.run(queue_ops.attributes(self._keys, _PROBE))

    async def metrics(self) -> Sequence[Metric]:
        """Return the state of the queues, at most `SAMPLE_EVERY_S` old."""
        return await self._sampled.get()

    async def stop(self) -> None:
        """Disconnect."""
        if self._store is not None:
            await self._store.close()

    @property
    def _open_store(self) -> AsyncStore:
        if self._store is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._store

    async def _sample(self) -> Sequence[Metric]:
        store = self._open_store
        names = await store.run(queue_ops.list_queues(self._keys))
        metrics = [Metric("queues", "Number of queues.", len(names))]
        for first in range(0, min(len(names), MAX_QUEUES), _CHUNK):
            calls = dict(self._calls(names[first : first + _CHUNK]))
            found = await store.outcomes(list(calls.values()))
            for queue, attributes in zip(calls, found, strict=True):
                if isinstance(attributes, QueueAttributes):
                    metrics += _numbers(queue, attributes)
                # Skip queues that were deleted meanwhile or are damaged.
                elif isinstance(attributes, StoreUnavailable):
                    raise attributes
        return metrics

    def _calls(self, names: Sequence[str]) -> Iterator[tuple[str, Call[QueueAttributes]]]:
        for queue in names:
            # Other clients may have created queues whose names ours refuse.
            with suppress(InvalidFormat):
                yield queue, queue_ops.attributes(self._keys, queue)


def _numbers(queue: str, found: QueueAttributes) -> Iterator[Metric]:
    labels = (("queue", queue),)
    yield Metric("messages", "Messages in a queue.", found.msgs, labels=labels)
    yield Metric("hidden", "Messages that are not visible now.", found.hiddenmsgs, labels=labels)
    yield Metric("sent", "Messages ever sent.", found.totalsent, "counter", labels)
    yield Metric("received", "Messages ever received.", found.totalrecv, "counter", labels)
