"""The check that no component listens beyond loopback without TLS and authentication."""

from __future__ import annotations

import ipaddress
import socket

from tambomq.access.directory import AccessOptions
from tambomq.access.file import UserFile
from tambomq.errors import SettingsError
from tambomq.settings.load import AccessSettings, Settings


def refuse_exposed(settings: Settings) -> None:
    """Raise `SettingsError` if a component would be reachable without authentication.

    ``--insecure`` turns the check off.
    """
    if settings.server.insecure:
        return
    gomq, kqueue, http = settings.gomq, settings.kqueue, settings.http
    has_users = settings.access.file is not None or settings.access.redis
    authenticates = gomq.token or gomq.tls_client_ca or has_users
    if gomq.enabled and not (gomq.tls_cert and authenticates):
        _require_loopback("gomq", gomq.host, f"TLS and a token {_flags('gomq', 'token')}")
    if kqueue.enabled and not (kqueue.tls_cert and kqueue.tls_client_ca):
        client_ca = _flags("kqueue", "tls-client-ca")
        _require_loopback("kqueue", kqueue.host, f"TLS and client certificates {client_ca}")
    if http.enabled and not (http.tls_cert and (http.token or http.viewer_token or has_users)):
        _require_loopback("http", http.host, f"TLS and a token {_flags('http', 'token')}")


def access_options(settings: AccessSettings) -> AccessOptions:
    """Return where the users are. Raises `SettingsError`."""
    if settings.file and settings.redis:
        raise SettingsError(
            "[access]: the users are in a file (--access-file) or in Redis (--access-redis), "
            "not in both"
        )
    if settings.file:
        # A file that cannot be used must be said before anything is started.
        UserFile(settings.file).read()
    return AccessOptions(str(settings.file) if settings.file else None, settings.redis)


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
