"""`AsyncGomqClient`: the asyncio GOMQ client. Its blocking twin in `client` has no `await`."""

from __future__ import annotations

import asyncio
from asyncio import Lock
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from tambomq.errors import BrokerError
from tambomq.gomq import requests
from tambomq.gomq.client_config import ADDRESS, OPTIONS, TIMEOUT_S, ClientConfig
from tambomq.gomq.client_heartbeat import ClientHeartbeat
from tambomq.gomq.model import Record
from tambomq.gomq.replies import ObservedBatch, batch_of, require_confirmed
from tambomq.gomq.requests import Metadata, Payload, Request
from tambomq.store.durability.level import MEMORY
from tambomq.store.endpoint import Tls

T = TypeVar("T")


class AsyncGomqClient:
    """An asyncio GOMQ client, for any number of tasks.

    The server knows it by *peer*, a random name unless given; a client that reconnects with the
    same name finds the messages that wait for it. *token* is sent as a bearer token. *timeout_s*
    bounds each call. If the server cannot be reached, a call keeps trying for *patience_s* more.
    *durable* is what a publish that returns without an error means, unless it says otherwise: the
    message is in Redis's ``"memory"``, on its ``"disk"``, or on ``"replicas:N"``; by default what
    the server is set to. `NotDurable` if that is not confirmed in time.

    Raises `BrokerUnavailable` when no reply came: a message may have been published all the same,
    or be so later, after the next ones, since a request that may have been sent is never repeated.
    Any other status is `BrokerRefused`.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        peer: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = 0.0,
        durable: str | None = None,
    ) -> None:
        """Store the settings; the first call connects."""
        self._config = ClientConfig(address, peer, token, tls, timeout_s, patience_s, durable)
        self._credentials = self._config.credentials()
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stubs: dict[str, Any] = {}
        self._batches: dict[str, str] = {}
        self._observe_locks: dict[str, Lock] = {}
        self._heartbeats = ClientHeartbeat(self, self._config, self._credentials)

    @property
    def peer(self) -> str:
        """The peer name of this client."""
        return self._config.peer

    async def publish(self, key: str, payload: Payload, *, durable: str | None = None) -> None:
        """Append *payload* to the queue of *key*, whether or not it has subscribers.

        *durable* overrides the client's level. Raises `NotDurable`, `DurabilityUnsupported`.
        """
        await self._run(requests.publish(key, payload, self._config.level(durable)))

    async def publish_many(
        self, records: Iterable[tuple[str, Payload]], *, durable: str | None = None
    ) -> int:
        """Publish pairs of key and payload, all or none, and return how many.

        They go in one message, which servers limit to 4 MiB by default. *durable*: see `publish`.
        """
        return await self._run(requests.publish_many(records, self._config.level(durable)))

    async def subscribe(self, key: str, consumer: str) -> None:
        """Subscribe *consumer* to *key*, and add this client to the peers of *consumer*.

        Every peer gets every payload. A peer that neither observes nor watches for 30 s (the
        server's peer timeout) is disconnected.
        """
        await self._run(requests.subscribe(key, consumer))

    async def unsubscribe(self, key: str, consumer: str) -> None:
        """End the subscription of *consumer*, with all its peers, to *key*."""
        await self._observed(requests.unsubscribe(key, consumer), consumer)

    async def observe(self, consumer: str, *, limit: int | None = None) -> list[Record]:
        """Return the records that wait for this client, in order for each key; may be empty.

        At most *limit* of each key, and never more than the server's own limit. The next call, or
        `close`, acknowledges them; if the reply is lost, the next call returns the same records.
        Until then the client sends heartbeats, so handling them may take any time.
        """
        return await self._observed(requests.observe(consumer, limit), consumer)

    def watch(self, consumer: str) -> AsyncIterator[Record]:
        """Yield the records that wait for this client, then new ones as they arrive.

        It observes whenever the server reports messages. A batch that is not read to its end is
        delivered again as a whole. Ends when *consumer* has no subscription left, and at `close`.
        Raises `BrokerUnavailable` when the connection is lost; watch again then.
        """
        return self._watch(requests.watch(consumer), consumer)

    async def close(self) -> None:
        """Acknowledge the last batches and disconnect; a later call connects again."""
        for consumer in [each for each, batch in list(self._batches.items()) if batch]:
            # If it fails, the batch is delivered again.
            with suppress(BrokerError):
                await self._observed(requests.settle(consumer, best_effort=True), consumer)
        await self._disconnect()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close. After an error only disconnect, so that the last batch is delivered again."""
        if error is None:
            await self.close()
        else:
            await self._disconnect()

    async def _run(self, request: Request[T]) -> T:
        return (await self._exchange(request, self._config.metadata))[0]

    async def _observed(self, request: Request[T], consumer: str) -> T:
        # Two concurrent calls would both get the batch that neither has acknowledged.
        async with self._observe_locks.setdefault(consumer, Lock()):
            metadata = self._config.observe_metadata(self._batches.get(consumer, ""))
            result, batch = await self._exchange(request, metadata)
            self._batches[consumer] = batch.name
            self._heartbeats.observed(consumer, batch)
        return result

    async def _exchange(self, request: Request[T], metadata: Metadata) -> tuple[T, ObservedBatch]:
        """Return the decoded reply, and the batch that it names."""
        try:
            call = self._stub(request)(
                request.message,
                metadata=(*metadata, *request.metadata),
                **self._config.limits(request),
            )
            reply = await call
            result = request.decode(reply)
            if request.durable != MEMORY:
                require_confirmed(request.durable, await call.initial_metadata(), result)
            return result, batch_of(await call.initial_metadata()) if result else ObservedBatch()
        except grpc.RpcError as error:
            raise self._config.failure(request, error) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # gRPC raises this for a channel that was closed.
            raise self._config.closed() from error

    async def _watch(self, request: Request[list[Record]], consumer: str) -> AsyncIterator[Record]:
        metadata = self._config.observe_metadata(self._batches.get(consumer, ""))
        # Connect with patience_s first: the Watch call has no timeout, so it cannot wait_for_ready.
        await self._exchange(requests.settle(consumer), metadata)
        opened = self._channel
        try:
            async with aclosing(self._wakeups(request)) as bells:
                async for _ in bells:
                    while self._channel is opened and (records := await self.observe(consumer)):
                        batch, self._batches[consumer] = self._batches[consumer], ""
                        for record in records[:-1]:
                            yield record
                        self._batches[consumer] = batch
                        yield records[-1]
        finally:
            if not self._batches.get(consumer):
                # The batch was not read to its end. Without heartbeats it is delivered again.
                self._heartbeats.drop(consumer)

    async def _wakeups(self, request: Request[list[Record]]) -> AsyncGenerator[None, None]:
        """Yield at once, and whenever the server reports that messages wait."""
        call = self._stub(request)(
            request.message, metadata=(*self._config.metadata, *request.metadata)
        )
        try:
            async for _ in call:
                yield
        except grpc.RpcError as error:
            raise self._config.failure(request, error) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
        finally:
            call.cancel()

    def _stub(self, request: Request[Any]) -> Any:
        loop = asyncio.get_running_loop()
        if self._channel is None or self._loop is not loop:
            # A channel of another event loop cannot be used in this one.
            self._channel, self._loop = self._open(), loop
            self._stubs, self._observe_locks = {}, {}
        if request.path not in self._stubs:
            make = self._channel.unary_stream if request.streams else self._channel.unary_unary
            self._stubs[request.path] = make(request.path, *request.codecs)
        return self._stubs[request.path]

    def _open(self) -> grpc.aio.Channel:
        address = self._config.address
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials, OPTIONS)

    async def _disconnect(self) -> None:
        self._heartbeats.clear()
        opened, self._channel = self._channel, None
        self._stubs = {}
        if opened:
            await opened.close(None)


def _is_cancelled() -> bool:
    """Whether the running task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
