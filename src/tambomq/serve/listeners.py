"""What doors that listen have in common: addresses, certificates, and why one cannot be opened."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from tambomq.errors import BrokerUnavailable, DoorFailed, PortTaken, SettingsError, StoreError
from tambomq.forms import LAST_PORT
from tambomq.tls import ServerTls


class TlsSettings(Protocol):
    """A section that names certificates."""

    @property
    def tls_cert(self) -> Path | None:
        """The certificate chain."""

    @property
    def tls_key(self) -> Path | None:
        """Its key."""

    @property
    def tls_client_ca(self) -> Path | None:
        """Who must have signed the certificates of clients."""


def server_tls(section: str, settings: TlsSettings) -> ServerTls | None:
    """Return the certificates that *settings* name, or ``None``. Raises `SettingsError`."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert and key:
        tls = ServerTls(cert, key, client_ca)
        # What cannot be used is refused before anything is opened.
        tls.context()
        return tls
    if cert or key or client_ca:
        flag = f"--{section}-tls-"
        raise SettingsError(f"[{section}]: TLS needs both {flag}cert and {flag}key")
    return None


def spelled(address: tuple[str, int]) -> str:
    """Return host and port as clients take them."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def cannot_open(door: str, address: tuple[str, int], error: Exception) -> DoorFailed:
    """Return what keeps *door* from listening on *address*, and the flags that help."""
    # Servers tell what happened in their own words; the system's are below.
    reason = error.__cause__ or error
    where, port = spelled(address), address[1]
    without = f"or leave it out with --no-{door}"
    if _is_taken(reason):
        other = port + 1 if port < LAST_PORT else port - 1
        advice = f"choose another port with --{door}-port {other}, {without}"
        return DoorFailed(door, f"{where} is taken: {advice}")
    if isinstance(error, OSError | BrokerUnavailable) and not isinstance(reason, StoreError):
        said = reason.strerror if isinstance(reason, OSError) else None
        advice = f"change --{door}-host or --{door}-port, {without}"
        return DoorFailed(door, f"cannot listen on {where}: {said or reason}: {advice}")
    return DoorFailed(door, f"{error}, {without}")


def _is_taken(reason: BaseException) -> bool:
    taken = isinstance(reason, OSError) and reason.errno == errno.EADDRINUSE
    return taken or isinstance(reason, PortTaken)
