"""An asyncio store for tests of messages, and queues to put them in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tambomq.chasqui import Queue
from tambomq.console.model import QueueRef
from tambomq.store.aio import AsyncStore
from tests.servers import Server

HOSTILE = "<script>alert(1)</script> \u202e\x1b[31m'\"; rm -rf $HOME `x` \u05d0\n{chasqui:x}"
"""A name that breaks what does not quote, escape or isolate it."""


@pytest.fixture
async def aio(server: Server) -> AsyncIterator[AsyncStore]:
    """An asyncio store on an empty server."""
    store = AsyncStore(server.url)
    yield store
    await store.close()


@pytest.fixture
def payments() -> QueueRef:
    """A ChasquiMQ queue."""
    return QueueRef("chasqui", "payments")


@pytest.fixture
async def queue(server: Server) -> AsyncIterator[Queue]:
    """The same queue as its producers have it."""
    async with Queue("payments", redis_url=server.url) as opened:
        yield opened
