"""KqueueMsgQ for asyncio. Its twins in `client` differ by `await` alone; keep them so.

Nothing is acknowledged in this protocol: what was handed to the network when a connection broke
may be lost. The call that notices raises `BrokerUnavailable`, the next one connects again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from tambomq.clock import Deadline
from tambomq.errors import BrokerUnavailable, TamboError
from tambomq.kqueue.async_link import AsyncLink
from tambomq.kqueue.connection import Role
from tambomq.kqueue.decoder import MessageDecoder
from tambomq.kqueue.frames import LIMITS, Limits, Message, Text, encode_message, pack_messages
from tambomq.kqueue.wishes import Wishes
from tambomq.store.connect import Tls, check_patience


class AsyncProducer:
    """Sends messages; for any number of tasks.

    *timeout_s* is how long connecting may take, and how long the server may take nothing. One
    that cannot be reached is tried again for *patience_s*; by default not at all.
    *limits* are the server's: what exceeds them is refused here.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: Tls | None = None,
        timeout_s: float = 5.0,
        patience_s: float = 0.0,
        limits: Limits = LIMITS,
    ) -> None:
        """Remember where the server is; the first message connects."""
        self._server, self._patience_s = (host, port, tls, timeout_s), check_patience(patience_s)
        self._limits, self._lock = limits, asyncio.Lock()
        self._link: AsyncLink | None = None

    async def send(self, queue: Text, body: Text) -> None:
        """Send a message to who is subscribed to *queue*.

        Raises `BrokerUnavailable`, `MessageTooLong`, `LocalProtocolError`.
        """
        await self._transmit(encode_message(queue, body, self._limits))

    async def send_many(self, messages: Iterable[tuple[Text, Text]]) -> int:
        """Send messages, each a queue and a body, many at a time; return how many they were.

        They are taken one by one, so there may be more than fit into memory. One that is
        refused ends it; those before it have been sent. Raises as `send`.
        """
        sent = 0
        for frames, count in pack_messages(messages, self._limits):
            await self._transmit(frames)
            sent += count
        return sent

    async def close(self) -> None:
        """Hang up once the server has read everything; a later message connects anew.

        It has no longer for that than connecting may take.
        """
        async with self._lock:
            link, self._link = self._link, None
            if link is not None:
                await link.finish()

    async def __aenter__(self) -> Self:
        """Return the producer itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up."""
        await self.close()

    async def _transmit(self, frames: bytes) -> None:
        async with self._lock:
            try:
                link = self._link
                if link is None:
                    link = self._link = await AsyncLink.reach(self._patience_s, *self._server)
                    await link.send(Role.PRODUCER.value)
                link.discard()
                await link.send(frames)
            except BrokerUnavailable:
                if self._link is not None:
                    self._link.abort()
                    self._link = None
                raise


class AsyncConsumer:
    """Receives the messages of the queues it is subscribed to; for one task at a time.

    What was subscribed to is subscribed to again when a new connection has to be made.
    *timeout_s* is how long connecting may take, and how long the server may take nothing. One
    that cannot be reached is tried again for *patience_s*; by default not at all.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        tls: Tls | None = None,
        timeout_s: float = 5.0,
        patience_s: float = 0.0,
        limits: Limits = LIMITS,
    ) -> None:
        """Remember where the server is; the first operation connects."""
        self._server, self._patience_s = (host, port, tls, timeout_s), check_patience(patience_s)
        self._limits, self._wishes = limits, Wishes(limits)
        self._link: AsyncLink | None = None
        self._decoder = MessageDecoder(limits)
        self._ready: deque[Message] = deque()

    async def subscribe(self, *queues: Text) -> None:
        """Receive the messages that *queues* get from now on. Raises `BrokerUnavailable`."""
        await self._tell(self._wishes.subscribe(*queues))

    async def subscribe_all(self) -> None:
        """Receive the messages of all queues, those without a name too."""
        await self._tell(self._wishes.subscribe_all())

    async def unsubscribe(self, *queues: Text) -> None:
        """Receive no more from *queues*, unless subscribed to all: then nothing changes."""
        await self._tell(self._wishes.unsubscribe(*queues))

    async def unsubscribe_all(self) -> None:
        """Receive nothing any more, but for what is already on its way."""
        await self._tell(self._wishes.unsubscribe_all())

    async def receive(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message; `None` if there is none for *timeout_s*, if one is given.

        Raises `BrokerUnavailable`, and `RemoteProtocolError` for what no server should send.
        """
        if self._ready:
            return self._ready.popleft()
        deadline = None if timeout_s is None else Deadline(timeout_s)
        try:
            link = await self._connected()
            self._ready.extend(self._decoder.feed(b""))
            while not self._ready:
                data = await link.receive(None if deadline is None else deadline.left_s)
                if data is None:
                    return None
                self._ready.extend(self._decoder.feed(data))
        except TamboError:
            self._drop()
            raise
        return self._ready.popleft()

    async def close(self) -> None:
        """Hang up; a later operation connects anew."""
        link, self._link = self._link, None
        self._decoder = MessageDecoder(self._limits)
        if link is not None:
            await link.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Receive without an end."""
        while (message := await self.receive()) is not None:
            yield message

    async def __aenter__(self) -> Self:
        """Return the consumer itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up."""
        await self.close()

    async def _tell(self, frames: bytes) -> None:
        try:
            if self._link is None:
                await self._connected()
            else:
                await self._link.send(frames)
        except BrokerUnavailable:
            self._drop()
            raise

    async def _connected(self) -> AsyncLink:
        if self._link is None:
            self._link = await AsyncLink.reach(self._patience_s, *self._server)
            await self._link.send(self._wishes.opening())
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._decoder = MessageDecoder(self._limits)
        if link is not None:
            link.abort()
