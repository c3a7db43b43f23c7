"""GOMQ for asyncio. Its twin in `client` differs by `await` alone; keep them so."""

from __future__ import annotations

import asyncio
import time
import weakref
from asyncio import Lock
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc

from tambomq.errors import BrokerError
from tambomq.gomq import channel
from tambomq.gomq.channel import ADDRESS, OPTIONS, TIMEOUT_S, Ask, Batch, Line, Payload, Words
from tambomq.gomq.holding import Holding
from tambomq.gomq.model import Record
from tambomq.store.connect import Tls

T = TypeVar("T")

_LOOK_EVERY_S: Final = 0.25


class AsyncGomqClient:
    """An asyncio GOMQ client, for any number of tasks.

    The server knows it by *peer*, a random name unless given: who comes back by the same name
    finds what waited. *token* is sent as a bearer token. *timeout_s* bounds each call. A server
    that cannot be reached is waited for *patience_s* longer; by default not at all.

    Raises `BrokerUnavailable` when no answer came: what was to be published may have been, since
    nothing that may have been sent is sent twice. Any other status is `BrokerRefused`.
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
    ) -> None:
        """Remember where the server is; the first call connects."""
        self._line = Line(address, peer, token, tls, timeout_s, patience_s)
        self._credentials = self._line.credentials()
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stubs: dict[str, Any] = {}
        self._batches: dict[str, str] = {}
        self._observing: dict[str, Lock] = {}
        self._holding = Holding()

    @property
    def peer(self) -> str:
        """The name that the server knows this client by."""
        return self._line.name

    async def publish(self, key: str, payload: Payload) -> None:
        """Append *payload* to the queue of *key*, whether or not anybody listens."""
        await self._run(channel.publish(key, payload))

    async def publish_many(self, records: Iterable[tuple[str, Payload]]) -> int:
        """Publish pairs of key and payload, all or none, and return how many.

        They go in one message, which servers take up to 4 MiB unless told otherwise.
        """
        return await self._run(channel.publish_many(records))

    async def subscribe(self, key: str, consumer: str) -> None:
        """Let *consumer*, with this client as one of its peers, receive *key*.

        Every peer gets every payload. One that neither observes nor watches for 30 s is
        disconnected.
        """
        await self._run(channel.subscribe(key, consumer))

    async def unsubscribe(self, key: str, consumer: str) -> None:
        """Let *consumer*, with all its peers, receive *key* no more."""
        await self._observed(channel.unsubscribe(key, consumer), consumer)

    async def observe(self, consumer: str, *, limit: int | None = None) -> list[Record]:
        """Return what waits for this client, in order for each key; perhaps nothing.

        At most *limit* of each key, and never more than the server's own limit. What is returned
        is acknowledged by the next call, and by `close`; if its reply is lost, the next call
        returns the same. Until then the client says by itself that it is there, so handling it
        may take any time.
        """
        return await self._observed(channel.observe(consumer, limit), consumer)

    def watch(self, consumer: str) -> AsyncIterator[Record]:
        """Yield what waits for this client, then what comes.

        It observes whenever the server says that something waits. Of a batch that is not read to
        its end, all comes again. Ends when *consumer* has no subscription left, and at `close`.
        When the server goes away it raises `BrokerUnavailable`; watch again then.
        """
        return self._watch(channel.watch(consumer), consumer)

    async def close(self) -> None:
        """Acknowledge what was observed, and hang up; a later call connects anew."""
        for consumer in [each for each, batch in list(self._batches.items()) if batch]:
            # Unheard, it costs a second delivery.
            with suppress(BrokerError):
                await self._observed(channel.settle(consumer, hurry=True), consumer)
        await self._hang_up()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; after an error hang up alone, so that what was observed last comes again."""
        if error is None:
            await self.close()
        else:
            await self._hang_up()

    async def _run(self, ask: Ask[T]) -> T:
        return (await self._exchange(ask, self._line.words))[0]

    async def _observed(self, ask: Ask[T], consumer: str) -> T:
        # Two at once would both be given what neither has acknowledged.
        async with self._observing.setdefault(consumer, Lock()):
            words = self._line.observing(self._batches.get(consumer, ""))
            result, batch = await self._exchange(ask, words)
            self._batches[consumer] = batch.name
            if self._holding.heard(consumer, batch.name, batch.timeout_s, time.monotonic()):
                self._keep()
        return result

    async def _exchange(self, ask: Ask[T], words: Words) -> tuple[T, Batch]:
        """Return what the reply means, and the batch it speaks of."""
        try:
            call = self._stub(ask)(
                ask.message, metadata=(*words, *ask.words), **self._line.limits(ask)
            )
            reply = await call
            result = ask.decode(reply)
            return result, channel.batch_of(await call.initial_metadata()) if result else Batch()
        except grpc.RpcError as error:
            raise self._line.failure(ask.method, error) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # gRPC's word for a channel that was closed.
            raise self._line.closed() from error

    async def _watch(self, ask: Ask[list[Record]], consumer: str) -> AsyncIterator[Record]:
        words = self._line.observing(self._batches.get(consumer, ""))
        # It has patience with a server that is not there, which a call without end cannot have.
        await self._exchange(channel.settle(consumer), words)
        opened = self._channel
        try:
            async with aclosing(self._bells(ask)) as bells:
                async for _ in bells:
                    while self._channel is opened and (records := await self.observe(consumer)):
                        batch, self._batches[consumer] = self._batches[consumer], ""
                        for record in records[:-1]:
                            yield record
                        self._batches[consumer] = batch
                        yield records[-1]
        finally:
            if not self._batches.get(consumer):
                # What was not read to its end comes again, to another if we are silent.
                self._holding.drop(consumer)

    async def _bells(self, ask: Ask[list[Record]]) -> AsyncGenerator[None, None]:
        """Yield at once, and whenever something waits."""
        call = self._stub(ask)(ask.message, metadata=(*self._line.words, *ask.words))
        try:
            async for _ in call:
                yield
        except grpc.RpcError as error:
            raise self._line.failure(ask.method, error) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
        finally:
            call.cancel()

    def _stub(self, ask: Ask[Any]) -> Any:
        loop = asyncio.get_running_loop()
        if self._channel is None or self._loop is not loop:
            # What was opened in another loop is of no use in this one.
            self._channel, self._loop = self._open(), loop
            self._stubs, self._observing, self._keeper = {}, {}, None
        if ask.path not in self._stubs:
            make = self._channel.unary_stream if ask.streams else self._channel.unary_unary
            self._stubs[ask.path] = make(ask.path, *ask.codecs)
        return self._stubs[ask.path]

    def _open(self) -> grpc.aio.Channel:
        address = self._line.address
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, OPTIONS)
        return grpc.aio.secure_channel(address, self._credentials, OPTIONS)

    def _keep(self) -> None:
        """See to it that somebody says that we are there as long as a batch is handled."""
        if self._keeper is None or self._keeper.done():
            # It does not keep the client: whom nobody holds any more is silent.
            self._keeper = asyncio.ensure_future(_keep(weakref.ref(self)))

    async def _say(self) -> float | None:
        """Say so if it is time to; return how long there is time then, if a batch is handled."""
        pause_s = self._holding.pause_s(time.monotonic())
        for consumer in self._holding.due(time.monotonic()):
            ask = channel.still_here(consumer, self._holding.patience_s(consumer))
            opened = self._channel
            if opened and not await self._said(opened, ask) and self._channel is opened:
                # It may have gone silent, as when a NAT forgets it: gRPC finds out too late.
                async with self._open() as another:
                    await self._said(another, ask)
        return pause_s

    async def _said(self, opened: grpc.aio.Channel, ask: Ask[Any]) -> bool:
        """Whether *ask* was answered on *opened*. What is lost is said again soon."""
        words = (*self._line.words, *ask.words)
        with suppress(grpc.RpcError, grpc.aio.UsageError):
            stub = opened.unary_unary(ask.path, *ask.codecs)
            await stub(ask.message, metadata=words, **self._line.limits(ask))
            return True
        return False

    async def _hang_up(self) -> None:
        self._holding.clear()
        if self._keeper:
            self._keeper.cancel()
            self._keeper = None
        opened, self._channel = self._channel, None
        self._stubs = {}
        if opened:
            await opened.close(None)


async def _keep(ref: weakref.ref[AsyncGomqClient]) -> None:
    """Say that a client is there as long as it is, and handles a batch."""
    while client := ref():
        pause_s = await client._say()  # noqa: SLF001  (its own other half)
        del client
        if pause_s is None:
            return
        await asyncio.sleep(min(pause_s, _LOOK_EVERY_S))


def _is_cancelled() -> bool:
    """Whether somebody wants the running task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
