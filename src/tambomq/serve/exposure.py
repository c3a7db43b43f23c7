"""The check that no component listens beyond loopback without TLS and authentication."""

from __future__ import annotations

import ipaddress
import socket

from tambomq.errors import SettingsError
from tambomq.settings.load import Settings


def refuse_exposed(settings: Settings) -> None:
    """Raise `SettingsError` if a component would be reachable without authentication.

    ``--insecure`` turns the check off.
    """
    if settings.server.insecure:
        return
    gomq, kqueue, http = settings.gomq, settings.kqueue, settings.http
    authenticates = gomq.token or gomq.tls_client_ca
    if gomq.enabled and not (gomq.tls_cert and authenticates):
        _require_loopback("gomq", gomq.host, f"TLS and a token {_flags('gomq', 'token')}")
    if kqueue.enabled and not (kqueue.tls_cert and kqueue.tls_client_ca):
        client_ca = _flags("kqueue", "tls-client-ca")
        _require_loopback("kqueue", kqueue.host, f"TLS and client certificates {client_ca}")
    if http.enabled:
        _require_loopback("http", http.host, "a proxy with TLS and a login before 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Return whether all addresses of *host* are loopback; true if it cannot be resolved."""
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # Listening on it fails too, with a better error.
        return True
    # An IPv6 address may have a scope ("fe80::1%eth0").
    return all(ipaddress.ip_address(str(at[0]).split("%")[0]).is_loopback for *_, at in infos)


def _flags(component: str, last: str) -> str:
    return f"(--{component}-tls-cert, --{component}-tls-key, --{component}-{last})"


def _require_loopback(component: str, host: str, protection: str) -> None:
    if not is_loopback(host):
        raise SettingsError(
            f"--{component}-host {host} is beyond loopback, and anyone who can reach it could use "
            f"it: give it {protection}, or allow it with --insecure"
        )
