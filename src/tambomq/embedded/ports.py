"""Ports and Unix socket of the embedded server: finds free ones and queries the server."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tambomq.errors import EmbeddedError, PortTaken
from tambomq.text import format_address

# A server that loads a large file answers between two pieces of it.
_ANSWER_WITHIN_S: Final = 2.0
# The shortest limit of any system on the path of a Unix socket, without its final NUL.
_SOCKET_NAME_BYTES: Final = 103


def choose(host: str, port: int) -> int:
    """Return *port* if it is free now, or any free one for 0.

    Another process may still take it first; then the server fails. Raises `PortTaken`.
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
        address = format_address(host, port)
        raise EmbeddedError(f"cannot listen on {address}: {exc.strerror}") from exc


def url(host: str, port: int, login: str = "") -> str:
    """Return the address as clients take it; *login* ends in @ if there is one."""
    return f"redis://{login}{format_address(host, port)}"


def can_have_socket(path: Path) -> bool:
    """Return whether the file system allows Unix sockets beside *path*."""
    try:
        with _short(path.with_name(".probe.sock")) as probe, socket.socket(socket.AF_UNIX) as made:
            made.bind(probe)
            Path(probe).unlink()
    except OSError:
        return False
    return True


def info(at: tuple[str, int] | Path, password: str = "") -> dict[str, str]:
    """Return INFO of the server *at* an address or Unix socket.

    Empty if none answers or the login fails; *password* is that of the default user. Written by
    hand: a client library takes longer to import than the server to start.
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
    """Yield a name of *path* that is short enough for a socket. Raises `OSError`."""
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
    """Whether something listens: on macOS bind may succeed beside a wildcard listener."""
    try:
        socket.create_connection((host, port), timeout=_ANSWER_WITHIN_S).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
