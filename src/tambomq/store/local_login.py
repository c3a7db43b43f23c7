"""How clients of this user find the password of an embedded server of this user by themselves.

A server that asks for one is registered by its port, in this user's default data directory. The
password itself is read from the server's own data directory, and only used while that server
runs: else whoever has taken its port would be sent it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tambomq.machine import default_data_dir

PASSWORD: Final = "password"  # noqa: S105  (the name of a file)
SOCKET: Final = "valkey.sock"
SERVER_LOCK: Final = "server.lock"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def register(port: int, data_dir: Path) -> None:
    """Let clients know that the server on *port* of loopback is that of *data_dir*."""
    path = _entry(port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{port}.{os.getpid()}")
    draft.write_text(str(data_dir), "utf-8")
    draft.replace(path)


def unregister(port: int, data_dir: Path) -> None:
    """Forget the server of *data_dir* on *port*."""
    with suppress(OSError):
        if _entry(port).read_text("utf-8") == str(data_dir):
            _entry(port).unlink()


def local_login(path: str | None, nodes: Sequence[tuple[str, int]]) -> tuple[str, str]:
    """Return user and password for the server at *path*, or at the only one of *nodes*.

    Empty if that is no embedded server of this user that asks for one.
    """
    try:
        data_dir = _data_dir(path, nodes)
        if data_dir is None or not _is_locked(data_dir / SERVER_LOCK):
            return "", ""
        # With a name, the password is also good where none is asked for any more.
        return "default", (data_dir / PASSWORD).read_text("utf-8").strip()
    except (OSError, RuntimeError):
        # Not there, or not ours to read; or this user has no home.
        return "", ""


def _data_dir(path: str | None, nodes: Sequence[tuple[str, int]]) -> Path | None:
    if path is not None:
        found = Path(path)
        return found.parent if found.name == SOCKET else None
    if len(nodes) != 1 or nodes[0][0] not in _LOOPBACK:
        return None
    return Path(_entry(nodes[0][1]).read_text("utf-8"))


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
