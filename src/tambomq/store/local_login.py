"""Password lookup: clients find the password of an embedded server of the same user.

A server with a password is registered by its port, in this user's default data directory, with the
address where it listens. The password itself is read from the server's own data directory, and only
sent while that server runs, on a connection to that address. Otherwise it would be sent to any
process that has taken the port, or the same port of another address of ``localhost``.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tambomq.machine import default_data_dir

PASSWORD: Final = "password"  # noqa: S105  (the name of a file)
SOCKET: Final = "valkey.sock"
SERVER_LOCK: Final = "server.lock"


def register(host: str, port: int, data_dir: Path) -> None:
    """Register the server of *data_dir* under its *port*, with its *host*."""
    path = _entry(port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{port}.{os.getpid()}")
    draft.write_text(_written(host, data_dir), "utf-8")
    draft.replace(path)


def unregister(host: str, port: int, data_dir: Path) -> None:
    """Remove the registration of the server of *data_dir*, if it is still its own."""
    with suppress(OSError):
        if _entry(port).read_text("utf-8") == _written(host, data_dir):
            _entry(port).unlink()


def local_login(at: str | tuple[str, int]) -> tuple[str, str]:
    """Return user and password for the server *at* a Unix socket, or an IP address and port.

    Both are empty if it is not an embedded server of this user, or needs no password.
    """
    try:
        data_dir = _data_dir(at)
        if data_dir is None or not _is_locked(data_dir / SERVER_LOCK):
            return "", ""
        # With a user name, AUTH also succeeds on a server that needs no password any more.
        return "default", (data_dir / PASSWORD).read_text("utf-8").strip()
    except (OSError, RuntimeError):
        # Not registered, not readable, or this user has no home directory.
        return "", ""


def _data_dir(at: str | tuple[str, int]) -> Path | None:
    if isinstance(at, str):
        found = Path(at)
        return found.parent if found.name == SOCKET else None
    host, port = at
    listens, _, path = _entry(port).read_text("utf-8").partition("\n")
    return Path(path) if host == listens else None


def _written(host: str, data_dir: Path) -> str:
    return f"{host}\n{data_dir}"


def _entry(port: int) -> Path:
    return default_data_dir() / "servers" / str(port)


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
