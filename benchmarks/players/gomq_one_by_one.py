"""GOMQ's dispatch as the existing server does it: a command and a round trip for each peer.

The rest of the service is ours, and so is the connection, so what differs is the dispatch alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.players.gomq_frames import PREFIX
from tambomq.gomq import keys
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.messages import names
from tambomq.gomq.server.dispatcher import Dispatcher
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

_OURS = keys.queue(PREFIX).encode()
_PAGE = 10
_LISTEN_S = 1


class OneByOne(Dispatcher):
    """Pops one message, looks for its consumers and their peers, and gives a copy to each."""

    def __init__(self, store: AsyncStore, waiting: AsyncStore) -> None:
        """*waiting* is a connection that may be blocked."""
        super().__init__(store)
        self._waiting = waiting

    def publish(self, key: str, element: bytes, durable: str | None = None) -> asyncio.Future[Any]:
        """Append *element* to its main queue."""
        return asyncio.ensure_future(self._sender(durable).run(message_ops.push(key, (element,))))

    async def publish_all(
        self, batches: Mapping[str, Sequence[bytes]], durable: str | None = None
    ) -> None:
        """Append to several main queues."""
        await self._sender(durable).run(message_ops.push_all(batches))

    async def dispatch(self, *_: str) -> None:
        """Leave it to `run`."""

    async def run(self) -> None:
        """Take one message after the other to its peers, for ever."""
        while True:
            subscribed = await self._store.run(_call("SMEMBERS", keys.SUBSCRIBED_KEYS))
            # What it pops and cannot copy is lost: of others' messages it keeps off.
            queues = [queue for queue in subscribed if queue.startswith(_OURS)]
            if not queues:
                await asyncio.sleep(0.01)
            elif popped := await self._waiting.run(_call("BLPOP", *queues, _LISTEN_S)):
                queue, element = popped
                await self._copy(queue.decode().removeprefix(keys.QUEUE), element)

    async def _copy(self, key: str, element: bytes) -> None:
        for consumers in self._pages(keys.consumers(key)):
            for consumer in await consumers:
                for peers in self._pages(keys.peers(consumer)):
                    for peer in await peers:
                        target = keys.messages(key, consumer, peer)
                        await self._store.run(_call("RPUSH", target, element))
                        self.copies += 1

    def _pages(self, key: str) -> Iterator[asyncio.Future[list[str]]]:
        """The members of a set, a page for each round trip."""
        cursor = b"0"

        async def page() -> list[str]:
            nonlocal cursor
            cursor, members = await self._store.run(_call("SSCAN", key, cursor, "COUNT", _PAGE))
            return names(members)

        yield asyncio.ensure_future(page())
        while cursor != b"0":
            yield asyncio.ensure_future(page())


class OneByOneService(Service):
    """The service with that dispatch."""

    def __init__(self, store: AsyncStore, waiting: AsyncStore) -> None:
        super().__init__(store)
        self._dispatcher = OneByOne(store, waiting)


def _call(verb: str, key: Any, *words: Any) -> Call[Any]:
    return Call(verb, (key,), words, decode=lambda reply: reply)
