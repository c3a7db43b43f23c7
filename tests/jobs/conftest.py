"""`Jobs` for tests, on a server that was emptied before, and workers for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tambomq.ids import letters
from tambomq.jobs import Jobs, JobsWorker
from tests.chasqui import working
from tests.servers import Server

server = working.server

Work = Callable[..., AbstractAsyncContextManager[JobsWorker]]


@pytest.fixture
async def jobs(server: Server) -> AsyncIterator[Jobs]:
    """Jobs of a queue that no other test has."""
    async with Jobs(f"q-{letters(8)}", redis_url=server.url) as made:
        yield made
        made.close_sync()


@pytest.fixture
def work() -> Work:
    """A function from a `Jobs` and options to a worker that runs."""

    @asynccontextmanager
    async def running(jobs: Jobs, **options: Any) -> AsyncIterator[JobsWorker]:
        worker = jobs.worker(**{"backoff": 1, "grace_s": 30.0, **options})
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            await worker.close()
            await task

    return running
