"""Doors for tests: one that writes down what happens to it, and helpers to open real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tambomq.errors import EmbeddedError
from tambomq.serve.door import Door, Endpoint, Metric
from tambomq.serve.store import GivenStore
from tests.servers import Server


class Recorded:
    """A door that writes down what happens to it; *fails* at one of its steps."""

    def __init__(self, name: str, diary: list[str] | None = None, *, fails: str = "") -> None:
        self.name, self.diary, self.fails = name, [] if diary is None else diary, fails
        self.checks = 0
        self.numbers: Sequence[Metric] = ()

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return (Endpoint(self.name, f"{self.name}://", "recorded"),)

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
async def opened(door: Door) -> AsyncIterator[None]:
    """*door* open and watched, as a process has it."""
    try:
        await door.start()
        watching = asyncio.ensure_future(door.watch())
        try:
            yield
            assert not watching.done()
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
    finally:
        await door.stop()


def given(server: Server) -> GivenStore:
    """The door to a server of the tests; the others may use it without opening it."""
    return GivenStore(server.url)


def numbers(metrics: Sequence[Metric]) -> dict[tuple[str, ...], float]:
    """*metrics* by name and label values."""
    return {(m.name, *(value for _, value in m.labels)): m.value for m in metrics}
