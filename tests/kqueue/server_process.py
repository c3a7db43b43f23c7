"""A KqueueMsgQ server in its own process, whose memory can be measured and which can be killed.

Started with its options as JSON. It prints its port, then answers each line it reads with a line
of JSON: its numbers to ``stats``, its memory to ``memory``. When its input ends, so does it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import uvloop

from tambomq.kqueue import KqueueServer, Limits, Stats
from tests.servers import eventually

_ROOT = Path(__file__).parents[2]
_WITHIN_S = 120.0


class Memory(NamedTuple):
    """Memory of a process in bytes, and the number of objects that the GC tracks."""

    now: int
    peak: int
    objects: int


class ServerProcess:
    """A server in its own process, on a free port; a crash of it fails the test.

    *send_buffer_bytes* is what the network may keep for each of its clients, *max_files* how
    many files it may open.
    """

    def __init__(self, loop: str = "uvloop", **options: Any) -> None:
        self._options = {"loop": loop, "port": 0, **options}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed when the server ends)
        self.port = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            code = self._end()
            self._log.seek(0)
            log = self._log.read()
        finally:
            self._process.kill()
            self._process.wait()
            self._log.close()
        if kind is None:
            assert (code, "Traceback" in log) == (0, False), log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stats(self) -> Stats:
        return msgspec.convert(self._ask("stats"), Stats)

    @property
    def memory(self) -> Memory:
        return Memory(**self._ask("memory"))

    def comes_to(self, condition: Callable[[Stats], bool]) -> Stats:
        """Wait until the server's statistics fulfil *condition*; return them."""

        def holds() -> Stats:
            stats = self.stats
            assert condition(stats), stats
            return stats

        return eventually(holds, within_s=_WITHIN_S)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._close_pipes()

    def restart(self) -> None:
        """Start it again on the same port."""
        self._options["port"] = self.port
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(self._options)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.port = int(self._answer())

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            self._log.seek(0)
            raise AssertionError(f"the server ended: {self._log.read()}")
        return json.loads(line)

    def _end(self) -> int:
        self._close_pipes()
        return self._process.wait(_WITHIN_S)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(_WITHIN_S)


# ── in that process ──────────────────────────────────────────────────────────


async def _serve(
    limits: dict[str, int] | None = None, send_buffer_bytes: int | None = None, **options: Any
) -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    server = KqueueServer(limits=Limits(**limits or {}), **options)
    await server.start()
    if send_buffer_bytes:
        assert server._server is not None
        for listening in server._server.sockets:
            # Accepted sockets inherit it.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    _say(server.address[1])
    async for line in lines:
        _say(_memory() if line == b"memory\n" else msgspec.to_builtins(server.stats))
    await server.stop(0)


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _memory() -> dict[str, int]:
    gc.collect()
    status = Path("/proc/self/status")
    if status.exists():
        rows = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines())
        now, peak = (int(rows[row].split()[0]) * 1024 for row in ("VmRSS", "VmHWM"))
    else:
        ps = ["ps", "-o", "rss=", "-p", str(os.getpid())]
        now = peak = int(subprocess.check_output(ps)) * 1024
    return {"now": now, "peak": peak, "objects": len(gc.get_objects())}


def _main() -> None:
    options = json.loads(sys.argv[1])
    if (max_files := options.pop("max_files", None)) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    is_uv = options.pop("loop") == "uvloop"
    factory = uvloop.new_event_loop if is_uv else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(**options))


if __name__ == "__main__":
    _main()
