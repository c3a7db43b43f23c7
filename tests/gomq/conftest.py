"""Stores and services for tests of GOMQ, on a server that was emptied before.

`store` asks one server and `each` every kind in turn; `serve` makes services, stopped in the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tests.servers import Server

Serve = Callable[..., Coroutine[Any, Any, Service]]


@pytest.fixture
async def serve(server: Server) -> AsyncIterator[Serve]:
    """A function from options, and perhaps a URL, to a service that has begun to work."""
    async with AsyncExitStack() as stack:

        async def start(url: str = "", *, patience_s: float = 10.0, **options: Any) -> Service:
            store = AsyncStore(url or server.url, patience_s=patience_s)
            stack.push_async_callback(store.close)
            service = Service(store, Options(**options))
            stack.push_async_callback(service.stop)
            await service.start()
            return service

        yield start


@pytest.fixture
async def service(serve: Serve) -> Service:
    """A service on an empty server."""
    return await serve()


class Peer:
    """A client without a transport: one peer of one consumer."""

    def __init__(self, service: Service, name: str = "127.0.0.1:5467", consumer: str = "c") -> None:
        self.service, self.name, self.consumer = service, name, consumer
        self.batch = ""
        """The last batch that arrived."""

    async def subscribe(self, key: str) -> None:
        await self.service.subscribe(self._subscription(key), Caller(self.name))

    async def unsubscribe(self, key: str, ack: str | None = None) -> None:
        await self.service.unsubscribe(self._subscription(key), Caller(self.name, ack))

    async def observe(self) -> list[bytes]:
        return payloads(await self.service.observe(self.identity, Caller(self.name)))

    async def observe_kept(self, ack: str, limit: int | None = None) -> list[bytes]:
        caller = Caller(self.name, ack, limit)
        found = payloads(await self.service.observe(self.identity, caller))
        self.batch = caller.reply["x-gomq-batch"]
        return found

    def watch(self) -> Any:
        return self.service.watch(self.identity, Caller(self.name))

    @property
    def identity(self) -> pb.Identification:
        return pb.Identification(consumerID=self.consumer)

    def _subscription(self, key: str) -> pb.Subscription:
        return pb.Subscription(key=key, consumerID=self.consumer)


async def publish(service: Service, key: str, *bodies: bytes) -> None:
    """Publish one after the other."""
    for body in bodies:
        await service.publish(pb.PublishRecord(key=key, payload=body), Caller("1.2.3.4:5"))


def payloads(records: pb.RecordSet) -> list[bytes]:
    """What the records carry."""
    return [record.value.payload for record in records.records]
