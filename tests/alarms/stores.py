"""Stores for tests of alarms, closed in the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tambomq.store.aio import AsyncStore

UNREACHABLE = "redis://127.0.0.1:1"


@asynccontextmanager
async def opened_store(url: str = UNREACHABLE) -> AsyncIterator[AsyncStore]:
    """A store on *url* that makes one attempt."""
    store = AsyncStore(url, patience_s=0)
    try:
        yield store
    finally:
        await store.close()
