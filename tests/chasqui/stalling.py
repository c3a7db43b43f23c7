"""A proxy in the test's own event loop that holds requests back for as long as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Hold = Callable[[bytes], Awaitable[object]]


@asynccontextmanager
async def stalling(port: int, hold: Hold) -> AsyncIterator[str]:
    """Yield the URL of a proxy to *port* that awaits *hold* before it passes a request on.

    Replies are not held back. Requests of one connection keep their order.
    """
    connections: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        opened, ways = [writer], list[asyncio.Task[None]]()
        try:
            with suppress(asyncio.CancelledError):
                there, to = await asyncio.open_connection("127.0.0.1", port)
                opened.append(to)
                ways = [
                    asyncio.create_task(_pass_on(reader, to, hold)),
                    asyncio.create_task(_pass_on(there, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for each in opened:
                each.transport.abort()

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()
        running = [each for each in connections if each is not None]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        # Aborted transports close their sockets in the next turn of the loop.
        await asyncio.sleep(0)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hold: Hold | None = None
) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            if hold is not None:
                await hold(data)
            writer.write(data)
            await writer.drain()
