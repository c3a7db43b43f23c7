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
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", port)
        ways = [
            asyncio.create_task(_pass_on(reader, to, hold)),
            asyncio.create_task(_pass_on(there, writer)),
        ]
        tasks.update(ways)
        with suppress(asyncio.CancelledError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, to):
            each.transport.abort()

    proxy = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    finally:
        proxy.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hold: Hold | None = None
) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            if hold is not None:
                await hold(data)
            writer.write(data)
            await writer.drain()
