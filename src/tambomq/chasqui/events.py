"""Hears what happens in a queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Self

from tambomq.chasqui import event_ops
from tambomq.chasqui.address import CredentialProvider, endpoint_of
from tambomq.chasqui.job import U32, QueueEvent, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.clock import pauses
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import PATIENCE_S, URL, Endpoint

log = logging.getLogger(__name__)

# A reply that takes longer means to the store that the server is gone.
MOST_BLOCK_MS = 20_000


class QueueEvents:
    """The events of a queue, one after the other: ``async for event in QueueEvents("emails")``.

    *last_event_id*: begin after this one; ``"$"`` hears what happens from now on,
    ``"0"`` all that is kept. Nothing falls between two reads. *patience_s*: how long
    `open` tries to reach the server.
    """

    def __init__(
        self,
        queue_name: str,
        *,
        redis_url: str | Endpoint = URL,
        tls: bool = False,
        last_event_id: str = "$",
        block_ms: int = 5_000,
        count: int = 100,
        credential_provider: CredentialProvider | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; the first event that is asked for connects."""
        self._keys = Keys(queue_name)
        endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._store = AsyncStore(endpoint, patience_s=patience_s)
        self._after = last_event_id
        self._block_ms = min(check_whole("block_ms", block_ms, U32, least=1), MOST_BLOCK_MS)
        self._count = check_whole("count", count, U32, least=1)
        self._closed = asyncio.Event()

    @property
    def name(self) -> str:
        """The queue's."""
        return self._keys.queue

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; what happens after this returns is heard."""
        if self._after == "$":
            self._after = await self._store.run(event_ops.last_id(self._keys))

    async def __aiter__(self) -> AsyncIterator[QueueEvent]:
        """Yield events until `close`; survives any absence of the server."""
        wait = pauses()
        while not self._closed.is_set():
            try:
                page = await self._next_page()
                wait = pauses()
            except TamboError as error:
                log.warning("cannot hear queue %r: %s", self.name, error)
                await asyncio.sleep(next(wait))
                continue
            for event in page:
                self._after = event.event_id
                yield event
                if self._closed.is_set():
                    return

    async def close(self) -> None:
        """Hear no more; an iteration that waits ends."""
        self._closed.set()
        await self._store.close()

    async def _next_page(self) -> list[QueueEvent]:
        await self.open()
        call = event_ops.read(self._keys, self._after, self._count, self._block_ms)
        reading = asyncio.ensure_future(self._store.run(call))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else []
        finally:
            reading.cancel()
            closing.cancel()
