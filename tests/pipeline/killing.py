"""Commands that are killed with -9, in the middle of what they do, when Redis shows that they are.

They reach the server through a `KillingProxy`, which looks at Redis whenever data passes. So the
moment depends on the server's state and not on the clock: after a script whose reply is never
received, or before one that is never sent.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.serve.processes import alive
from tests.servers import eventually

COMMAND = (sys.executable, "-c", "from tambomq.cli.main import main; main()", "pipeline")
WITHIN_S = 240
HEARD, UNHEARD = True, False
"""Whether the command has had its last answer when it is killed."""

Seen = Callable[[], bool]


class KillingProxy:
    """A proxy of a server whose clients can be killed at any call."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._server = str(at.hostname), int(at.port or 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._welcome)]
        self._kill_seen: tuple[int, Seen, bool] | None = None
        self._deciding = threading.Lock()
        self.url = "redis://{}:{}".format(*self._listening.getsockname())
        self._threads[0].start()

    def close(self) -> None:
        """Stop; all clients must have disconnected by then."""
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WITHIN_S)
        self._listening.close()

    def kills(self, group: int, seen: Seen, *, heard: bool) -> None:
        """Kill a group of processes once *seen* is true, on the way to the server or back."""
        self._kill_seen = group, seen, heard

    def _welcome(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                thread = threading.Thread(target=self._pass_on, args=(peer,))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, peer: socket.socket) -> None:
        with (
            suppress(OSError),
            peer,
            socket.create_connection(self._server) as server,
            selectors.DefaultSelector() as readable,
        ):
            readable.register(peer, selectors.EVENT_READ, (peer, server))
            readable.register(server, selectors.EVENT_READ, (server, peer))
            while True:
                for key, _ in readable.select():
                    source, target = key.data
                    data = source.recv(1 << 16)
                    if not data or self._is_over(asks=source is peer):
                        return
                    target.sendall(data)

    def _is_over(self, *, asks: bool) -> bool:
        with self._deciding:
            if self._kill_seen is None:
                return False
            group, seen, heard = self._kill_seen
            if asks != heard or not seen():
                return False
            self._kill_seen = None
            os.killpg(group, signal.SIGKILL)
            return True


@contextmanager
def proxy(url: str) -> Iterator[KillingProxy]:
    """A proxy that is closed when the block ends."""
    opened = KillingProxy(url)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def _started(way: KillingProxy, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "TAMBO_REDIS_URL": way.url},
            start_new_session=True,  # so that a JVM is killed with it
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def killed(way: KillingProxy, log: Path, seen: Seen, *words: str, heard: bool = UNHEARD) -> str:
    """Run a command until *seen* is true, and kill it there; return its output."""
    with _started(way, log, *words) as process:
        way.kills(process.pid, seen, heard=heard)
        assert process.wait(WITHIN_S) == -signal.SIGKILL, log.read_text()[-2000:]
    eventually(lambda: not alive(process.pid))
    return log.read_text()


def done(way: KillingProxy, log: Path, *words: str) -> str:
    """Run a command to its good end; return what it printed."""
    with _started(way, log, *words) as process:
        assert process.wait(WITHIN_S) == 0, log.read_text()[-2000:]
    return log.with_suffix(".out").read_text()


def number(reply: Any) -> int:
    """Return what a client of Redis says is a number, or nothing."""
    return int(reply or 0)
