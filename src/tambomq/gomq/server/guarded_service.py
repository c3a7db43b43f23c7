"""`GuardedService`: the calls of a `Service`, for users that have the right to make them.

It stands before the service where access control is on, and only there. Publish and PublishMany
need ``send`` for their keys, Subscribe and Unsubscribe ``receive``. Subscribe, Observe and Watch
make the caller a peer of a consumer, so they need ``receive`` for each key of this one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Final

from tambomq.access.directory import UserSession
from tambomq.access.model import Right
from tambomq.errors import AccessError, NotAuthenticated
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.ops import admin as admin_ops
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore

PROTOCOL: Final = "gomq"


class GuardedService:
    """The calls of *service*, whose Redis is *store*, behind the checks of rights."""

    def __init__(self, service: Service, store: AsyncStore) -> None:
        self._service, self._store = service, store

    async def ping(self) -> None:
        """Check that Redis answers. Raises `StoreError`."""
        await self._service.ping()

    async def publish(self, request: pb.PublishRecord, caller: Caller) -> pb.Result:
        """Append a payload, with the right to send to its key."""
        _require(caller, "send", (request.key,))
        return await self._service.publish(request, caller)

    async def publish_many(self, request: pb.PublishRecords, caller: Caller) -> pb.Result:
        """Append all payloads, with the right to send to each key, or none."""
        _require(caller, "send", {record.key for record in request.records})
        return await self._service.publish_many(request, caller)

    async def subscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """Subscribe a consumer, with the right to receive from the key and its other keys."""
        _require(caller, "receive", (request.key,))
        # The caller becomes a peer of the consumer, for all of its keys.
        await self._require_consumer(request.consumerID, caller)
        return await self._service.subscribe(request, caller)

    async def unsubscribe(self, request: pb.Subscription, caller: Caller) -> pb.Result:
        """End a subscription, with the right to receive from the key."""
        _require(caller, "receive", (request.key,))
        return await self._service.unsubscribe(request, caller)

    async def observe(self, request: pb.Identification, caller: Caller) -> pb.RecordSet:
        """Deliver messages, with the right to receive from each key of the consumer."""
        await self._require_consumer(request.consumerID, caller)
        # Another may have subscribed the consumer to a further key meanwhile.
        return await self._service.observe(request, caller, partial(_require_records, caller))

    async def watch(
        self, request: pb.Identification, caller: Caller
    ) -> AsyncGenerator[pb.RecordSet]:
        """Deliver messages as they arrive, with the right to receive from each of their keys."""
        await self._require_consumer(request.consumerID, caller)
        async with aclosing(self._service.watch(request, caller)) as sets:
            async for records in sets:
                # The rights may have changed since. What is not yielded is queued again.
                _require_records(caller, records)
                yield records

    async def _require_consumer(self, consumer: str, caller: Caller) -> None:
        # Before Redis is asked for anything.
        _require_any(caller, "receive")
        keys.check_consumer(consumer)
        subscribed = await self._store.run(admin_ops.subscribed(consumer))
        _require(caller, "receive", subscribed)


def _require(caller: Caller, right: Right, names: Iterable[str]) -> None:
    session = _session(caller)
    try:
        # Also without any name: the user may have been removed.
        session.check()
        for name in names:
            session.require(right, PROTOCOL, name)
    except AccessError as error:
        session.count(error, caller.address or caller.peer)
        raise


def _require_any(caller: Caller, right: Right) -> None:
    session = _session(caller)
    try:
        session.require_any(right, PROTOCOL)
    except AccessError as error:
        session.count(error, caller.address or caller.peer)
        raise


def _require_records(caller: Caller, records: pb.RecordSet) -> None:
    _require(caller, "receive", {record.key for record in records.records})


def _session(caller: Caller) -> UserSession:
    if caller.session is None:
        # Nobody has authenticated this caller: it is refused, whatever let it through.
        raise NotAuthenticated("a token or a client certificate is required")
    return caller.session
