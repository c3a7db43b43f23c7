"""A proxy between a client and its server that fails on demand."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Way = Literal["request", "reply"]

_LOOK_EVERY_S = 0.005


class Proxy:
    """Passes bytes on, in a thread of its own; counts them and may lose them.

    All of it may be changed while connections are open.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = 0
        self.connections = 0
        """How many have been made."""
        self.requests = 0
        """How many pieces have come from clients: one for each round trip, if small."""
        self.silent = False
        """Whether to keep all replies back."""
        self.instead: list[bytes] = []
        """What to answer to the next requests instead of passing them on."""
        self.held: set[Way] = set()
        """The ways on which bytes wait, as in a network without a route: they go on afterwards."""
        self.delay_s = 0.0
        """How long each piece waits before it is passed on."""
        self._stalled: set[int] = set()
        self._cut: dict[Way, int] = {}
        self._links: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def cut(self, way: Way, after: int) -> None:
        """Hang up once, when *after* more bytes have gone this way."""
        self._cut[way] = after

    def stall(self, *connections: int) -> None:
        """Stop forwarding on *connections*, by number from 1, or on all that there are.

        Neither side gets a FIN or RST, as when a NAT forgets them. New connections work.
        """
        self._stalled.update(connections or range(1, self.connections + 1))

    def hang_up(self) -> None:
        """Close every connection."""
        self._loop.call_soon_threadsafe(self._hang_up)

    def _hang_up(self) -> None:
        for link in self._links:
            link.transport.abort()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        self._hang_up()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._links.add(writer)
        try:
            with suppress(OSError):
                there, to = await asyncio.open_connection("127.0.0.1", self._to)
                self._links.add(to)
                try:
                    await self._pass_on(number, reader, writer, there, to)
                finally:
                    to.transport.abort()
                    self._links.discard(to)
        finally:
            writer.close()
            self._links.discard(writer)

    async def _pass_on(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        to: asyncio.StreamWriter,
    ) -> None:
        async with asyncio.TaskGroup() as ways:
            both = [
                ways.create_task(self._requests(number, reader, to, writer)),
                ways.create_task(self._replies(number, there, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for way in both:
                way.cancel()

    async def _requests(
        self,
        number: int,
        reader: asyncio.StreamReader,
        to: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        while data := await _some(reader):
            await self._wait("request")
            if number in self._stalled:
                continue
            self.requests += 1
            if self.instead:
                back.write(self.instead.pop(0))
            elif await self._passed("request", data, to):
                return

    async def _replies(
        self, number: int, there: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await _some(there):
            await self._wait("reply")
            kept_back = self.silent or number in self._stalled
            if not kept_back and await self._passed("reply", data, writer):
                return

    async def _wait(self, way: Way) -> None:
        """Wait for as long as the network takes."""
        await asyncio.sleep(self.delay_s)
        while way in self.held and not self._over.is_set():  # noqa: ASYNC110  (set by a thread)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _passed(self, way: Way, data: bytes, to: asyncio.StreamWriter) -> bool:
        """Write what may go; whether it is time to hang up."""
        allowed = self._cut.get(way, len(data) + 1)
        cut = len(data) >= allowed
        if cut:
            del self._cut[way]
            data = data[:allowed]
        elif way in self._cut:
            self._cut[way] -= len(data)
        with suppress(OSError):
            to.write(data)
            await to.drain()
        return cut


async def _some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    except OSError:
        return b""
