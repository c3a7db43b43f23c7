"""Our KqueueMsgQ server in a process of its own, on the loop that ``tambo serve`` takes.

Prints its port, serves until stdin ends, and prints what it counted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable

import msgspec

from tambomq.kqueue import KqueueServer


async def serve(server: KqueueServer) -> None:
    """Serve until stdin ends."""
    async with server:
        print(server.address[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        print(msgspec.json.encode(server.stats).decode(), flush=True)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop called *name*; ``None`` is asyncio's own."""
    if name == "asyncio":
        return None
    try:
        import uvloop  # noqa: PLC0415  (not to be had everywhere)
    except ImportError:
        return None
    return uvloop.new_event_loop


def main() -> None:
    """Read flags and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--slow", choices=("disconnect", "drop", "block"), default="disconnect")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
        runner.run(serve(KqueueServer(port=0, slow=options.slow)))


if __name__ == "__main__":
    main()
