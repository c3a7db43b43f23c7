"""Our GOMQ server in a process of its own, on the loop that ``tambo serve`` takes.

Prints its port and serves until stdin ends.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

import uvloop

from tambomq.gomq.server.grpc_server import GomqServer


async def serve(transport: str, url: str) -> None:
    """Serve at a free port until stdin ends."""
    kind: type[Any] = GomqServer
    if transport == "envoy":
        from tambomq.gomq.envoy.server import EnvoyGomqServer  # noqa: PLC0415  (an extra brings it)

        kind = EnvoyGomqServer
    async with kind(url, port=0) as server:
        print(server.address[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Read flags and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("transport", choices=("grpc", "envoy"))
    parser.add_argument("url")
    options = parser.parse_args()
    uvloop.run(serve(options.transport, options.url))


if __name__ == "__main__":
    main()
