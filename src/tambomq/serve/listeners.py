"""Helpers of components that listen: addresses, certificates, and errors with advice."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from tambomq.errors import BrokerUnavailable, ComponentFailed, PortTaken, SettingsError, StoreError
from tambomq.settings.types import LAST_PORT
from tambomq.text import format_address
from tambomq.tls import ServerTls


class TlsSettings(Protocol):
    """A settings section with certificates."""

    @property
    def tls_cert(self) -> Path | None:
        """The certificate chain."""

    @property
    def tls_key(self) -> Path | None:
        """Its key."""

    @property
    def tls_client_ca(self) -> Path | None:
        """The CA that must have signed the certificates of clients."""


def server_tls(section: str, settings: TlsSettings) -> ServerTls | None:
    """Return the certificates that *settings* name, or ``None``. Raises `SettingsError`."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert and key:
        tls = ServerTls(cert, key, client_ca)
        # Load them now: unusable certificates must fail before anything is started.
        tls.context()
        return tls
    if cert or key or client_ca:
        flag = f"--{section}-tls-"
        raise SettingsError(f"[{section}]: TLS needs both {flag}cert and {flag}key")
    return None


def cannot_open(
    component: str, address: tuple[str, int], error: Exception, *, is_optional: bool = True
) -> ComponentFailed:
    """Return the error for a *component* that cannot listen on *address*, with flags that help.

    One that *is_optional* has a flag that leaves it out.
    """
    # A server wraps the OSError that we want to look at.
    reason = error.__cause__ or error
    shown, port = format_address(*address), address[1]
    without = f", or leave it out with --no-{component}" if is_optional else ""
    if _is_taken(reason):
        other = port + 1 if port < LAST_PORT else port - 1
        advice = f"choose another port with --{component}-port {other}{without}"
        return ComponentFailed(component, f"{shown} is taken: {advice}")
    if isinstance(error, OSError | BrokerUnavailable) and not isinstance(reason, StoreError):
        text = reason.strerror if isinstance(reason, OSError) else None
        advice = f"change --{component}-host or --{component}-port{without}"
        return ComponentFailed(component, f"cannot listen on {shown}: {text or reason}: {advice}")
    return ComponentFailed(component, f"{error}{without}")


def _is_taken(reason: BaseException) -> bool:
    taken = isinstance(reason, OSError) and reason.errno == errno.EADDRINUSE
    return taken or isinstance(reason, PortTaken)
