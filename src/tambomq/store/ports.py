"""Ports for the embedded server: whether one is free, a free one, and who answers there."""

from __future__ import annotations

import errno
import socket
from typing import Final

from tambomq.errors import EmbeddedError, PortTaken

# A server that loads a large file answers between two pieces of it.
_ANSWER_WITHIN_S: Final = 2.0


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


def url(host: str, port: int) -> str:
    """Return the address as clients take it."""
    return f"redis://[{host}]:{port}" if ":" in host else f"redis://{host}:{port}"


def info(host: str, port: int) -> dict[str, str]:
    """Return what the server there tells of itself; empty when none answers, or not to us.

    Spoken by hand: a client library takes longer to import than the server to start.
    """
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_WITHIN_S) as peer:
            peer.sendall(b"INFO server persistence\r\n")
            with peer.makefile("rb") as reply:
                head = reply.readline()
                body = reply.read(int(head[1:])) if head.startswith(b"$") else b""
    except (OSError, ValueError):
        return {}
    lines = body.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _answers(host: str, port: int) -> bool:
    """Whether somebody listens: on macOS binding may succeed beside a wildcard listener."""
    try:
        socket.create_connection((host, port), timeout=_ANSWER_WITHIN_S).close()
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
