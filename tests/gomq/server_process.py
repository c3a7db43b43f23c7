"""A GOMQ server in a process of its own, for tests that kill it. Configured in JSON.

Prints its port when it serves. Ends when its stdin does, so it never outlives its test.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tambomq.gomq.model import Options
from tambomq.gomq.server.grpc_server import GomqServer
from tests.servers.ports import free_port


class GomqProcess:
    """A server on one port of loopback, which it keeps over restarts."""

    def __init__(self, url: str, **options: Any) -> None:
        """Choose a free port; *options* are those of `Options`."""
        self._url, self._options = url, options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        options = json.dumps({"url": self._url, "port": self.port, "options": self._options})
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, options], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"%d\n" % self.port, f"the server printed {line!r} and did not start"

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), if it runs."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.communicate()


@contextmanager
def gomq_process(url: str, **options: Any) -> Iterator[GomqProcess]:
    """A server that runs; it is gone when the block ends."""
    process = GomqProcess(url, **options)
    try:
        process.start()
        yield process
    finally:
        process.kill()


async def _serve(url: str, port: int, options: dict[str, Any]) -> None:
    async with GomqServer(url, port=port, options=Options(**options)) as server:
        print(server.address[1], flush=True)  # noqa: T201  (what the test waits for)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(**json.loads(sys.argv[1])))
