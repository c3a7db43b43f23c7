"""Serves KqueueMsgQ until SIGTERM."""

from __future__ import annotations

import asyncio

from tambomq.kqueue import KqueueServer
from tests.chaos.role import RoleContext, main


async def serve(context: RoleContext) -> None:
    """Serve until the program is to end."""
    async with KqueueServer(port=context.port):
        await asyncio.to_thread(context.stopping.wait)


def program(context: RoleContext) -> None:
    """Serve until the program is to end."""
    asyncio.run(serve(context))


if __name__ == "__main__":
    main(program)
