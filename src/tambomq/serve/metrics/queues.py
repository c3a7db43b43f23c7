"""The component that reads all queues: one sample feeds the metrics and the console."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from tambomq.console.read.queues.broker_view import BrokerView
from tambomq.console.read.reader import Reader
from tambomq.errors import ComponentFailed
from tambomq.serve.component import Metric, ServedEndpoint
from tambomq.serve.health import CHECK_WITHIN_S
from tambomq.serve.metrics.queue_metrics import queue_metrics
from tambomq.serve.store import StoreComponent
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import endpoint


class QueuesComponent:
    """Reads the queues on the server of *redis*, and those of *brokers* in this process."""

    name = "queue"
    endpoints: Sequence[ServedEndpoint] = ()

    def __init__(self, redis: StoreComponent, brokers: BrokerView | None = None) -> None:
        self._redis, self._brokers = redis, brokers
        self._reader: Reader | None = None

    @property
    def reader(self) -> Reader:
        """What the console reads with. Raises `ComponentFailed` before the start."""
        if self._reader is None:
            raise ComponentFailed(self.name, "it is not started")
        return self._reader

    async def start(self) -> None:
        """Make the reader; the first call connects."""
        server = endpoint(self._redis.url).with_timeout(CHECK_WITHIN_S)
        self._reader = Reader(AsyncStore(server, patience_s=0), brokers=self._brokers)

    async def watch(self) -> None:
        """Do nothing: queues are read when somebody asks."""
        await asyncio.Event().wait()

    async def check(self) -> None:
        """Do nothing: the Redis component checks the server."""

    async def metrics(self) -> Sequence[Metric]:
        """Return the numbers of all queues, at most 2 s old. Raises `StoreError`."""
        reader = self.reader
        refresh = await reader.recent()
        sampled = {
            ref: (sample, reader.row(ref, refresh)) for ref, sample in refresh.samples.items()
        }
        about = "Connections to Redis that were opened again to read queues."
        reconnects = max(0, reader.store.connections_opened - 1)
        return [
            *queue_metrics(sampled, refresh.cut_off),
            Metric("reconnects", about, reconnects, "counter"),
        ]

    async def lengths(self) -> Mapping[str, int]:
        """Return how many messages each queue has, dead letters aside. Raises `StoreError`."""
        refresh = await self.reader.recent()
        return {str(ref): sample.depth for ref, sample in refresh.samples.items()}

    async def stop(self) -> None:
        """Disconnect."""
        if self._reader is not None:
            await self._reader.store.close()
