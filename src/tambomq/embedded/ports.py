"""Where the embedded server listens: free ports, its Unix socket, and who answers there."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tambomq.errors import EmbeddedError, PortTaken

# A server that loads a large file answers between two pieces of it.
_ANSWER_WITHIN_S: Final = 2.0
# What the smaller systems allow the name of a socket; the last byte ends it.
_SOCKET_NAME_BYTES: Final = 103


def choose(host: str, port: int) -> int:
    """Return *port* if it can be had now, or any free one for 0.

    Somebody may still take it before the server does; then the server says so. Raises `PortTaken`.
    """
    if port and _answers(host, port):
        raise PortTaken(host, port)
    try:
        with socket.socket(_family(host)) as probe:
            # As the server does, or connections of its predecessor would be in the way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken(host, port) from exc
        raise EmbeddedError(f"cannot listen on {host}:{port}: {exc.strerror}") from exc


def url(host: str, port: int, login: str = "") -> str:
    """Return the address as clients take it; *login* ends in @ if there is one."""
    return f"redis://{login}[{host}]:{port}" if ":" in host else f"redis://{login}{host}:{port}"


def can_have_socket(path: Path) -> bool:
    """Return whether the file system lets a Unix socket be made beside *path*."""
    try:
        with _short(path.with_name(".probe.sock")) as probe, socket.socket(socket.AF_UNIX) as made:
            made.bind(probe)
            Path(probe).unlink()
    except OSError:
        return False
    return True


def info(at: tuple[str, int] | Path, password: str = "") -> dict[str, str]:
    """Return what the server *at* an address or Unix socket tells of itself.

    Empty when none answers, or not to us; *password* is that of the default user. Spoken by hand:
    a client library takes longer to import than the server to start.
    """
    try:
        with _connected(at) as peer:
            peer.settimeout(_ANSWER_WITHIN_S)
            login = f"AUTH {password}\r\n" if password else ""
            peer.sendall(f"{login}INFO server persistence\r\n".encode())
            with peer.makefile("rb") as reply:
                if password:
                    reply.readline()
                head = reply.readline()
                body = reply.read(int(head[1:])) if head.startswith(b"$") else b""
    except (OSError, ValueError):
        return {}
    lines = body.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


@contextmanager
def _connected(at: tuple[str, int] | Path) -> Iterator[socket.socket]:
    if isinstance(at, tuple):
        with socket.create_connection(at, timeout=_ANSWER_WITHIN_S) as peer:
            yield peer
        return
    with _short(at) as name, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(name)
        yield peer


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a name of *path* that a socket may have, however long the path is. Raises `OSError`."""
    if len(os.fsencode(path)) <= _SOCKET_NAME_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Only Linux has this; elsewhere the name does not exist.
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _answers(host: str, port: int) -> bool:
    """Whether somebody listens: on macOS binding may succeed beside a wildcard listener."""
    try:
        socket.create_connection((host, port), timeout=_ANSWER_WITHIN_S).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
