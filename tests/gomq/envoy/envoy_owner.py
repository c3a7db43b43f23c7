"""A process that serves GOMQ through Envoy until it is killed; once up, it prints pid and port."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys

import pytest

from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.model import Options
from tests.servers import Server

needs_envoy = pytest.mark.skipif(
    importlib.util.find_spec("pyvoy") is None, reason="the extra [envoy] is not installed"
)


def owning(server: Server) -> subprocess.Popen[str]:
    """Start such a process on *server*; a message takes at most 64 KiB there."""
    return subprocess.Popen(
        [sys.executable, __file__, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def pid_and_port(owner: subprocess.Popen[str]) -> tuple[int, int]:
    """Return Envoy's pid and port, once it is up."""
    assert owner.stdout
    pid, port = owner.stdout.readline().split()
    return int(pid), int(port)


async def main() -> None:
    """Serve the store whose URL is the first argument."""
    options = Options(max_message_bytes=1 << 16)
    async with EnvoyGomqServer(sys.argv[1], port=0, options=options) as server:
        print(server.pid, server.address[1], flush=True)  # noqa: T201  (read by `pid_and_port`)
        await server.watch()


if __name__ == "__main__":
    asyncio.run(main())
