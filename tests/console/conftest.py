"""A store for tests of the console, on a running server with nothing in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tambomq.store.aio import AsyncStore
from tests.servers import Server


@pytest.fixture
async def store(server: Server) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(server.url)
    yield opened
    await opened.close()
