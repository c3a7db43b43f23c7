"""Refuses to listen beyond loopback where everybody who can reach the port could use it."""

from __future__ import annotations

import ipaddress
import socket

from tambomq.errors import SettingsError
from tambomq.settings import Settings


def refuse_exposed(settings: Settings) -> None:
    """Raise `SettingsError` if a door would be open to strangers, and nobody said it may be."""
    if settings.server.insecure:
        return
    gomq, kqueue, http = settings.gomq, settings.kqueue, settings.http
    is_known = gomq.token or gomq.tls_client_ca
    if gomq.enabled and not (gomq.tls_cert and is_known):
        _require_loopback("gomq", gomq.host, f"TLS and a token {_flags('gomq', 'token')}")
    if kqueue.enabled and not (kqueue.tls_cert and kqueue.tls_client_ca):
        client_ca = _flags("kqueue", "tls-client-ca")
        _require_loopback("kqueue", kqueue.host, f"TLS and client certificates {client_ca}")
    if http.enabled:
        _require_loopback("http", http.host, "a proxy with TLS and a login before 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches *host*; one that does not exist is nobody's."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # Listening fails there too, and says why.
        return True
    # An IPv6 address may carry the name of an interface.
    return all(ipaddress.ip_address(str(at[0]).split("%")[0]).is_loopback for *_, at in found)


def _flags(door: str, last: str) -> str:
    return f"(--{door}-tls-cert, --{door}-tls-key, --{door}-{last})"


def _require_loopback(door: str, host: str, lock: str) -> None:
    if not is_loopback(host):
        raise SettingsError(
            f"--{door}-host {host} is beyond loopback, and everybody who can reach it could use "
            f"it: give it {lock}, or say with --insecure that this is meant"
        )
