"""The Redis of a chaos run. It keeps an append-only file; its disk and its clock may be faulty."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tests.chaos.shims.disk import DiskFault
from tests.servers import Server, binaries
from tests.servers.clock import SteppedServer

Shim = Literal["disk", "clock"]

_OPTIONS: Final = ("--appendonly", "yes", "--appendfsync", "everysec")


@dataclass(frozen=True, slots=True)
class ChaosRedis:
    """A running server, and what it needs for some faults."""

    server: Server
    disk: DiskFault | None = None
    clock: SteppedServer | None = None


@contextmanager
def redis_server(shims: Collection[Shim]) -> Iterator[ChaosRedis]:
    """A server with *shims*: libraries that are loaded into it, and slow it down a little."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tambo-chaos-")))
        disk = stack.enter_context(DiskFault(folder / "disk")) if "disk" in shims else None
        clock, environ = None, dict(disk.environ) if disk else {}
        server: Server
        if "clock" in shims:
            preload = [environ["LD_PRELOAD"]] if disk else []
            server = clock = SteppedServer(
                binaries.valkey(), folder, *_OPTIONS, preload=preload, environ=environ
            )
        else:
            server = Server(binaries.valkey(), *_OPTIONS, environ=environ)
        stack.enter_context(server)
        if disk:
            disk.move_to(server.dir)
        yield ChaosRedis(server, disk, clock)
