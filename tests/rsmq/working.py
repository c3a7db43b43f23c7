"""Workers that run for the length of a `with` block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tambomq.rsmq import AsyncRsmq, Backoff, RsmqWorker
from tests.servers.run import Server

AT_ONCE = Backoff(first_s=0.0, longest_s=0.0)


@asynccontextmanager
async def working(worker: RsmqWorker) -> AsyncIterator[asyncio.Task[None]]:
    """Run *worker* inside the block, then stop it."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
        worker.stop()
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def send(server: Server, *bodies: str, vt: int = 30) -> None:
    async with AsyncRsmq(server.url) as rsmq:
        with suppress(Exception):
            await rsmq.create_queue("q", vt=vt)
        await rsmq.send_messages("q", bodies)
