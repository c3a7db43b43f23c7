"""RSMQ's door. Clients speak with Redis itself, so this one only proves and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from tambomq.errors import DoorFailed, InvalidFormat, QueueNotFound, StoreUnavailable, TamboError
from tambomq.log import mask_url
from tambomq.rsmq import queue_ops
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import QueueAttributes
from tambomq.serve.door import Endpoint, Metric
from tambomq.serve.health import CHECK_WITHIN_S, Coalesced
from tambomq.serve.store import StoreDoor
from tambomq.store import probe
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.connect import endpoint

SAMPLE_EVERY_S: Final = 5.0
MOST_QUEUES: Final = 1000
"""Numbers are told of the first so many, by name."""
_CHUNK: Final = 100
# Nobody needs to have it: that it is not there is an answer, too.
_PROBE: Final = "tambo.probe"


class RsmqDoor:
    """RSMQ on the server of *redis*."""

    name = "rsmq"

    def __init__(self, redis: StoreDoor) -> None:
        self._redis, self._keys = redis, Keys()
        self._store: AsyncStore | None = None
        self._sampled = Coalesced(self._sample, SAMPLE_EVERY_S)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The Redis server, as RSMQ's users name it."""
        url = mask_url(self._redis.url)
        return (Endpoint(self.name, url, "RSMQ", f"tambo rsmq queue list --redis-url {url}"),)

    async def start(self) -> None:
        """See whether its operations work here. Raises `DoorFailed`."""
        server = endpoint(self._redis.url).with_timeout(CHECK_WITHIN_S)
        self._store = AsyncStore(server, patience_s=0)
        try:
            await self._ask()
        except TamboError as error:
            raise DoorFailed(self.name, f"{error}: leave it out with --no-rsmq") from error

    async def watch(self) -> None:
        """Do nothing: there is nothing to keep open."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """See whether the server takes writes, and run one of its scripts."""
        await self._open_store.follow(probe.takes_writes())
        await self._ask()

    async def _ask(self) -> None:
        with suppress(QueueNotFound):
            await self._open_store.run(queue_ops.attributes(self._keys, _PROBE))

    async def metrics(self) -> Sequence[Metric]:
        """Return what is in the queues, as it was a few seconds ago at most."""
        return await self._sampled.get()

    async def stop(self) -> None:
        """Hang up."""
        if self._store is not None:
            await self._store.close()

    @property
    def _open_store(self) -> AsyncStore:
        if self._store is None:
            raise DoorFailed(self.name, "it is not open")
        return self._store

    async def _sample(self) -> Sequence[Metric]:
        store = self._open_store
        names = await store.run(queue_ops.list_queues(self._keys))
        told = [Metric("queues", "Queues there are.", len(names))]
        for first in range(0, min(len(names), MOST_QUEUES), _CHUNK):
            asked = dict(self._questions(names[first : first + _CHUNK]))
            found = await store.outcomes(list(asked.values()))
            for queue, attributes in zip(asked, found, strict=True):
                if isinstance(attributes, QueueAttributes):
                    told += _numbers(queue, attributes)
                # One that was deleted meanwhile, or is damaged, is left out.
                elif isinstance(attributes, StoreUnavailable):
                    raise attributes
        return told

    def _questions(self, names: Sequence[str]) -> Iterator[tuple[str, Call[QueueAttributes]]]:
        for queue in names:
            # Other clients may have made queues by names that ours do not take.
            with suppress(InvalidFormat):
                yield queue, queue_ops.attributes(self._keys, queue)


def _numbers(queue: str, found: QueueAttributes) -> Iterator[Metric]:
    labels = (("queue", queue),)
    yield Metric("messages", "Messages in a queue.", found.msgs, labels=labels)
    yield Metric("hidden", "Messages that are not visible now.", found.hiddenmsgs, labels=labels)
    yield Metric("sent", "Messages ever sent.", found.totalsent, "counter", labels)
    yield Metric("received", "Messages ever received.", found.totalrecv, "counter", labels)
