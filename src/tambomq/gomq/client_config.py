"""The configuration of a client: its server, credentials, timeouts and level of durability."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Final

import grpc

from tambomq.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    DurabilityUnsupported,
    InvalidFormat,
    InvalidValue,
    NotDurable,
    SettingsError,
)
from tambomq.gomq.replies import refused_level
from tambomq.gomq.requests import Metadata, Request
from tambomq.gomq.server.auth import ACK, PEER, Authenticator
from tambomq.ids import draw_in_children, letters
from tambomq.store.durability.level import MEMORY, durability
from tambomq.store.durability.level import TIMEOUT_S as DURABLE_TIMEOUT_S
from tambomq.store.endpoint import Tls, check_patience

ADDRESS: Final = "127.0.0.1:10001"
TIMEOUT_S: Final = 10.0

OPTIONS: Final = (
    # Reconnect within 2 s of a server's return.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Only during calls: existing servers disconnect clients that ping between calls.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Each client has its own connection, so that `close` ends it.
    ("grpc.use_local_subchannel_pool", 1),
    # Like all our clients, connect directly to the server.
    ("grpc.enable_http_proxy", 0),
)
# Bounds the acknowledgement that `close` sends.
_BEST_EFFORT_S: Final = 1.0
# The time that a durable publish has in addition: the server may end another wait before its own.
_DURABLE_S: Final = 2 * DURABLE_TIMEOUT_S
_PEER_LETTERS: Final = 20  # of an alphabet of 62: as unique as a UUID
# No reply came, whichever side noticed.
_NO_REPLY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class ClientConfig:
    """The server, credentials, timeouts and level of durability of a client.

    Raises `InvalidFormat`, `InvalidValue`.
    """

    def __init__(
        self,
        address: str,
        peer: str | None,
        token: str | None,
        tls: Tls | None,
        timeout_s: float,
        patience_s: float,
        durable: str | None = None,
    ) -> None:
        _check_address(address)
        if not timeout_s > 0:
            raise InvalidValue("timeout_s", timeout_s, "more than 0")
        if durable is not None:
            durability(durable)
        self.address, self._tls, self._durable = address, tls, durable
        self._timeout_s, self._patience_s = timeout_s, check_patience(patience_s)
        self._token = token
        if peer is None:
            self.draw()
            draw_in_children(self)
        else:
            self.peer, self.metadata = peer, _metadata(peer, token)

    def draw(self) -> None:
        """Take a new random peer name; a forked child with its parent's would steal its records."""
        self.peer = letters(_PEER_LETTERS)
        self.metadata = _metadata(self.peer, self._token)

    def level(self, durable: str | None) -> str | None:
        """Return the level of a publish that asks for *durable*; `None`: the server's default."""
        return self._durable if durable is None else durable

    def limits(self, request: Request[Any]) -> dict[str, Any]:
        """Return gRPC's timeout options for *request*.

        gRPC repeats a request only if it was certainly not sent, and only until the timeout.
        """
        if request.best_effort or request.timeout_s is not None:
            return {"timeout": min(self._timeout_s, request.timeout_s or _BEST_EFFORT_S)}
        timeout = self._timeout_s + self._patience_s
        if request.durable != MEMORY:
            timeout += _DURABLE_S
        return {"timeout": timeout, "wait_for_ready": self._patience_s > 0}

    def observe_metadata(self, batch: str) -> Metadata:
        """Return the metadata of an Observe that acknowledges *batch*."""
        return (*self.metadata, (ACK, batch))

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the TLS credentials, `None` without TLS. Raises `SettingsError`."""
        if self._tls is None:
            return None
        if not self._tls.verify:
            raise SettingsError(
                "gRPC verifies every server: name its certificate authority with ca"
            )
        # Load them now: gRPC would fail later, without saying which file is wrong.
        self._tls.context()
        roots = self._tls.ca or ssl.get_default_verify_paths().cafile
        return grpc.ssl_channel_credentials(*map(_file, (roots, self._tls.key, self._tls.cert)))

    def failure(
        self, request: Request[Any], error: Any
    ) -> BrokerError | NotDurable | DurabilityUnsupported:
        """Return the error for a *request* that gRPC ended with a status."""
        if unreached := refused_level(error, request.stored):
            return unreached
        status, details = error.code(), error.details() or ""
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer to {request.method} in time"
        if status in _NO_REPLY:
            return BrokerUnavailable(self.address, details)
        return BrokerRefused(request.method, status.name, details)

    def closed(self) -> BrokerUnavailable:
        """Return the error for a call that `close` interrupted."""
        return BrokerUnavailable(self.address, "the client was closed")


def _metadata(name: str, token: str | None) -> Metadata:
    metadata = {PEER: name} if token is None else {PEER: name, "authorization": f"Bearer {token}"}
    for what, word in metadata.items():
        if not (word.isascii() and word.isprintable()):
            raise InvalidFormat(what, "…", "printable ASCII")
    # Check the name now; a server would refuse it with each call.
    Authenticator().admit("", metadata)
    return tuple(metadata.items())


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    is_complete = host and port.isascii() and port.isdigit() and (":" not in host or host[0] == "[")
    # Without a port gRPC would use 443. Addresses with a scheme are left to gRPC.
    if not is_complete and not address.startswith(("dns:", "unix:")):
        raise InvalidFormat("address", address, "host:port, such as 127.0.0.1:10001 or [::1]:10001")


def _file(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
