"""Our KqueueMsgQ server in its own process, on the event loop of ``tambo serve``.

Prints its port, serves until stdin ends, and prints its counters.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import msgspec

from tambomq.kqueue import KqueueServer
from tambomq.runtime.event_loop import loop_factory


async def serve(server: KqueueServer) -> None:
    """Serve until stdin ends."""
    async with server:
        print(server.address[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(msgspec.json.encode(server.stats).decode(), flush=True)


def main() -> None:
    """Read flags and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--slow", choices=("disconnect", "drop", "block"), default="disconnect")
    options = parser.parse_args()
    with asyncio.Runner(
        loop_factory=loop_factory() if options.loop == "uvloop" else None
    ) as runner:
        runner.run(serve(KqueueServer(port=0, slow=options.slow)))


if __name__ == "__main__":
    main()
