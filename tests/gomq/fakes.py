"""A server on a loop of its own, with the real service or a scripted one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, cast

import uvloop

from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.client import GomqClient
from tambomq.gomq.model import GomqStats
from tambomq.gomq.server.auth import BATCH, Caller
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.store.endpoint import URL
from tambomq.text import format_address

KINDS = ("threads", "asyncio")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "stock": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
_ANSWER_WITHIN_S = 120.0

Run = Callable[[Awaitable[Any]], Any]


class FakeService:
    """In place of `Service`: notes its calls, and does what the test says."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, Caller]] = []
        self.cancelled = 0
        self.error: Exception | None = None
        """Raised by every call."""
        self.hang = False
        """Whether calls never end."""
        self.batches: list[pb.RecordSet] = []
        """What Observe and Watch hand out."""
        self.stats = GomqStats(0, 0, 0, 0, 0, 0)

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def ping(self) -> None:
        """Succeed, unless scripted otherwise."""
        if self.error:
            raise self.error
        if self.hang:
            await self._hang()

    async def publish(self, request: Any, caller: Caller) -> pb.Result:
        """Succeed, unless scripted otherwise."""
        await self._note(request, caller)
        return pb.Result(code=0)

    publish_many = subscribe = unsubscribe = publish

    async def observe(self, request: Any, caller: Caller) -> pb.RecordSet:
        """Hand out the first batch."""
        await self._note(request, caller)
        caller.reply[BATCH] = f"batch-{len(self.requests)}"
        return self.batches.pop(0) if self.batches and caller.limit != 0 else pb.RecordSet()

    async def watch(self, request: Any, caller: Caller) -> AsyncIterator[pb.RecordSet]:
        """Hand out all batches."""
        await self._note(request, caller)
        for batch in self.batches:
            yield batch
        if self.hang:
            await self._hang()

    async def _note(self, request: Any, caller: Caller) -> None:
        self.requests.append((request, caller))
        if self.error:
            raise self.error
        if self.hang and not isinstance(request, pb.Identification):
            await self._hang()

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Served:
    """A running server, and the loop it runs on."""

    def __init__(self, server: GomqServer, run: Run) -> None:
        self.server, self.run = server, run

    @property
    def address(self) -> str:
        """Where it is."""
        return format_address(*self.server.address)


@contextmanager
def serving(
    url: str = URL, *, service: FakeService | None = None, loop: str = "stock", **options: Any
) -> Iterator[Served]:
    """A server on a free port."""
    with loop_in_a_thread(LOOPS[loop]) as run:
        server = GomqServer(url, **{"port": 0, **options})
        if service is not None:
            server._service = cast("Any", service)
        run(server.start())
        try:
            yield Served(server, run)
        finally:
            run(server.stop(0))


@contextmanager
def loop_in_a_thread(
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[Run]:
    """A function that awaits something on a loop of its own and returns the result."""
    loop = factory()
    thread = Thread(target=loop.run_forever)
    thread.start()

    def run(something: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await something

        return asyncio.run_coroutine_threadsafe(wait(), loop).result(_ANSWER_WITHIN_S)

    try:
        yield run
    finally:
        run(_end_all())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_all() -> None:
    # gRPC's own tasks go away by themselves, a moment after what they belong to.
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if rest:
        await asyncio.wait(rest, timeout=1)


@contextmanager
def connected(kind: str, address: str, **options: Any) -> Iterator[GomqClient]:
    """A client of that *kind*; the asyncio one blocks, so that each test is written once."""
    if kind == "threads":
        with GomqClient(address, **options) as client:
            yield client
        return
    with loop_in_a_thread() as run:
        waiting = AsyncGomqClient(address, **options)
        try:
            yield cast("GomqClient", _Blocking(waiting, run))
        finally:
            run(waiting.close())


class _Blocking:
    """An `AsyncGomqClient` whose methods return what they otherwise promise."""

    def __init__(self, client: AsyncGomqClient, run: Run) -> None:
        self._client, self._run = client, run
        self.peer = client.peer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *args, **kwargs: self._run(_called(method, args, kwargs))

    def watch(self, consumer: str) -> Iterator[Any]:
        return _iterated(self._client.watch(consumer), self._run)


async def _called(method: Callable[..., Coroutine[Any, Any, Any]], args: Any, kwargs: Any) -> Any:
    return await method(*args, **kwargs)


def _iterated(records: Any, run: Run) -> Iterator[Any]:
    try:
        while True:
            try:
                record = run(anext(records))
            except StopAsyncIteration:
                return
            yield record
    finally:
        run(records.aclose())
