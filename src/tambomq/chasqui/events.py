"""A subscription to the events of a queue, from asyncio. It reads the events stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Self

from tambomq.chasqui.endpoint import CredentialProvider, endpoint_of
from tambomq.chasqui.job import U32, QueueEvent, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import events as event_ops
from tambomq.clock import backoff_delays
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import PATIENCE_S, URL, Endpoint

log = logging.getLogger(__name__)

# The store treats a server that replies later than this as unreachable.
MAX_BLOCK_MS = 20_000


class QueueEvents:
    """The events of a queue, in order: ``async for event in QueueEvents("emails")``.

    *last_event_id*: start after this event; ``"$"`` yields only new events, ``"0"`` all that are
    kept. No event is skipped between two reads. *patience_s*: how long `open` tries to reach the
    server.
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
        """Check the options; `open` or the first iteration connects."""
        self._keys = Keys(queue_name)
        endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._store = AsyncStore(endpoint, patience_s=patience_s)
        self._after = last_event_id
        self._block_ms = min(check_whole("block_ms", block_ms, U32, minimum=1), MAX_BLOCK_MS)
        self._count = check_whole("count", count, U32, minimum=1)
        self._closed = asyncio.Event()

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._keys.queue

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; every event after this returns is yielded."""
        if self._after == "$":
            self._after = await self._store.run(event_ops.last_id(self._keys))

    async def __aiter__(self) -> AsyncIterator[QueueEvent]:
        """Yield events until `close`. Keeps retrying while the server is unreachable."""
        wait = backoff_delays()
        while not self._closed.is_set():
            try:
                page = await self._next_page()
                wait = backoff_delays()
            except TamboError as error:
                log.warning(
                    "cannot read the events of queue %r: %s",
                    self.name,
                    error,
                    extra={"queue": self.name},
                )
                await asyncio.sleep(next(wait))
                continue
            for event in page:
                self._after = event.event_id
                yield event
                if self._closed.is_set():
                    return

    async def close(self) -> None:
        """Disconnect; an iteration that waits for events ends."""
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
