"""ChasquiMQ queues and workers for tests, on a server that was emptied before.

`queue` is the asyncio one, `blocking` the other, `twin` each of them in turn; `connect` and
`connect_to` make twins with options. `open_queue` and `work` make queues and workers for
asyncio. All of one test are of one queue, `keys`, whose name no other test has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from typing import Any, cast

import pytest

from tambomq.chasqui import BlockingQueue, Queue, Worker
from tambomq.chasqui.keys import Keys
from tambomq.ids import letters
from tests.rsmq.twins import KINDS, loop_in_a_thread
from tests.servers import Server

Connect = Callable[..., BlockingQueue]
OpenQueue = Callable[..., Queue]
Work = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def keys() -> Keys:
    """The keys of this test's queue."""
    return Keys(f"q-{letters(8)}")


# ── asyncio ──────────────────────────────────────────────────────────────────


@pytest.fixture
async def open_queue(keys: Keys, server: Server) -> AsyncIterator[OpenQueue]:
    """A function from options to a `Queue`, which is closed after the test."""
    async with AsyncExitStack() as stack:

        def open_one(name: str = keys.queue, **options: Any) -> Queue:
            opened = Queue(name, **{"redis_url": server.url, **options})
            stack.push_async_callback(opened.close)
            return opened

        yield open_one


@pytest.fixture
def queue(open_queue: OpenQueue) -> Queue:
    """A queue on an empty server."""
    return open_queue()


@pytest.fixture
def work(keys: Keys, server: Server) -> Work:
    """A function from a handler and options to a worker of the queue, for ``async with``."""

    def make(handler: Any, **options: Any) -> AbstractAsyncContextManager[Worker]:
        return working(Worker(keys.queue, handler, **{"redis_url": server.url, **options}))

    return make


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[Worker]:
    """Run *worker* inside the block, and close it in order."""
    task = asyncio.create_task(worker.run())
    try:
        yield worker
        await worker.close()
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# ── both twins ───────────────────────────────────────────────────────────────


@pytest.fixture(params=KINDS)
def connect_to(request: pytest.FixtureRequest, keys: Keys) -> Iterator[Connect]:
    """A function from a URL and options to a queue of either kind, closed after the test."""
    with ExitStack() as stack:

        def connect(url: str, name: str = keys.queue, **options: Any) -> BlockingQueue:
            return stack.enter_context(connected(request.param, url, name, **options))

        yield connect


@pytest.fixture
def connect(connect_to: Connect, server: Server) -> Connect:
    """A function from options to a queue of either kind, on the emptied server."""
    return partial(connect_to, server.url)


@pytest.fixture
def twin(connect: Connect) -> BlockingQueue:
    """A queue on an empty server: in turn the blocking one and the asyncio one."""
    return connect()


@pytest.fixture
def blocking(keys: Keys, server: Server) -> Iterator[BlockingQueue]:
    """The blocking queue on an empty server."""
    with BlockingQueue(keys.queue, redis_url=server.url) as opened:
        yield opened


@contextmanager
def connected(kind: str, url: str, name: str, **options: Any) -> Iterator[BlockingQueue]:
    """A queue of that *kind*; the asyncio one blocks, so it may be used from any thread too."""
    if kind == "threads":
        with BlockingQueue(name, redis_url=url, **options) as opened:
            yield opened
        return
    with loop_in_a_thread() as run:
        waiting = Queue(name, redis_url=url, **options)
        try:
            yield cast("BlockingQueue", _Blocking(waiting, run))
        finally:
            run(waiting.close())


class _Blocking:
    """A `Queue` whose methods return what they otherwise promise."""

    def __init__(self, queue: Queue, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._queue, self._run = queue, run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._queue, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *args, **kwargs: self._run(found(*args, **kwargs))
