"""Serves GOMQ until SIGTERM. While Redis cannot be reached at the start, it tries again."""

from __future__ import annotations

import asyncio

from tambomq.errors import StoreError
from tambomq.gomq.model import Options
from tambomq.gomq.server.grpc_server import GomqServer
from tests.chaos.role import RoleContext, main

PEER_TIMEOUT_LEASES = 20.0
_AGAIN_S = 0.1


async def serve(context: RoleContext) -> None:
    """Serve until the program is to end."""
    options = Options(peer_timeout_s=context.lease_s * PEER_TIMEOUT_LEASES)
    while not context.stopping.is_set():
        try:
            async with GomqServer(context.url, port=context.port, options=options):
                await asyncio.to_thread(context.stopping.wait)
        except StoreError:
            await asyncio.sleep(_AGAIN_S)


def program(context: RoleContext) -> None:
    """Serve until the program is to end."""
    asyncio.run(serve(context))


if __name__ == "__main__":
    main(program)
