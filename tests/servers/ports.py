"""Free ports of loopback, each drawn by one test process at a time."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

# Below the range that outgoing connections take theirs from: those of other tests would take the
# port, and a client that comes back while no server runs could be given the server's own, and speak
# with itself. And low enough that a cluster bus (port + 10000) still fits.
_PORTS = range(20_000, 32_000)
_TRIES = 50
# hypothesis seeds `random`: two processes would try the same ports in the same order.
_RANDOM = random.SystemRandom()

_drawn: deque[int] = deque()
"""The locked files of the ports drawn last; a lock ends when its file is closed."""
_MAX_DRAWN = 200
"""Every one of them is an open file, and a process may have about a thousand."""


def free_port() -> int:
    """Return a port that nobody listens on, and that no other test process is given for a while."""
    for port in free_ports():
        return port
    raise RuntimeError("no port is free")


def free_ports() -> Iterator[int]:
    """Yield some ports like `free_port`; for who may find one taken by a stranger all the same."""
    for port in _RANDOM.sample(_PORTS, _TRIES):
        if (lock := _locked(port)) is None:
            continue
        if not _is_free(port):
            os.close(lock)
            continue
        _drawn.append(lock)
        if len(_drawn) > _MAX_DRAWN:
            os.close(_drawn.popleft())
        yield port


def _locked(port: int) -> int | None:
    folder = Path(tempfile.gettempdir()) / f"tambo-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    lock = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
