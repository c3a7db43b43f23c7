"""Components for tests: one that records its calls, and helpers to start real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tambomq.errors import EmbeddedError
from tambomq.serve.component import Component, Metric, ServedEndpoint
from tambomq.serve.store import ExternalStore
from tests.servers import Server


class Recorded:
    """A component that records its calls in *diary*; the call named by *fails* raises."""

    def __init__(self, name: str, diary: list[str] | None = None, *, fails: str = "") -> None:
        self.name, self.diary, self.fails = name, [] if diary is None else diary, fails
        self.checks = 0
        self.numbers: Sequence[Metric] = ()

    @property
    def endpoints(self) -> Sequence[ServedEndpoint]:
        return (ServedEndpoint(self.name, f"{self.name}://", "recorded"),)

    async def start(self) -> None:
        await self._do("start")

    async def watch(self) -> None:
        await self._do("watch")
        await asyncio.Event().wait()

    async def check(self) -> None:
        await asyncio.sleep(0)
        self.checks += 1
        if self.fails == "check":
            raise EmbeddedError(f"{self.name} cannot check redis://:s3cret@h")
        if self.fails == "hang":
            await asyncio.Event().wait()

    async def metrics(self) -> Sequence[Metric]:
        await asyncio.sleep(0)
        if self.fails == "metrics":
            raise EmbeddedError(f"{self.name} cannot count")
        return self.numbers

    async def stop(self) -> None:
        await self._do("stop")

    async def _do(self, what: str) -> None:
        await asyncio.sleep(0)
        self.diary.append(f"{what} {self.name}")
        if self.fails == what:
            raise EmbeddedError(f"{self.name} cannot {what}")


@asynccontextmanager
async def opened(component: Component) -> AsyncIterator[None]:
    """*component* open and watched, as a process has it."""
    try:
        await component.start()
        watching = asyncio.ensure_future(component.watch())
        try:
            yield
            assert not watching.done()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
    finally:
        await component.stop()


def given(server: Server) -> ExternalStore:
    """The component to a server of the tests; the others may use it without opening it."""
    return ExternalStore(server.url)


def numbers(metrics: Sequence[Metric]) -> dict[tuple[str, ...], float]:
    """*metrics* by name and label values."""
    return {(m.name, *(value for _, value in m.labels)): m.value for m in metrics}
