"""`GomqServer`: the grpc.aio transport of GOMQ. What a call does is decided in `Service`."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import grpc

from tambomq.access.denials import Denial
from tambomq.access.directory import NO_ACCESS, AccessOptions, UserDirectory
from tambomq.errors import BrokerUnavailable, StoreError
from tambomq.gomq.model import GomqStats, Options
from tambomq.gomq.server.auth import Authenticator
from tambomq.gomq.server.grpc_handlers import Handlers
from tambomq.gomq.server.guarded_service import GuardedService
from tambomq.gomq.server.probe import probe
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import URL
from tambomq.text import format_address
from tambomq.tls import ServerTls

HOST: Final = "127.0.0.1"
PORT: Final = 10001

_UNLIMITED: Final = -1
_GRPC: Final = "grpc._cython.cygrpc"
_CHANNEL: Final = (
    # Two servers on one port would get half of the clients each.
    ("grpc.so_reuseport", 0),
    # The service limits its replies itself.
    ("grpc.max_send_message_length", _UNLIMITED),
    # A client that vanished without closing its connection is noticed within 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients may ping us as well; gRPC's default, one ping in 5 minutes, would disconnect them.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


class GomqServer:
    """A GOMQ server on *host* and *port*; port 0 is any that is free.

    *url* is the Redis server, or a store, which is then left open. With *token* every call but a
    health check needs it as a bearer token. With *access* calls need a user with the right to make
    them. Use ``async with``, or `start` and `stop`.
    """

    def __init__(
        self,
        url: str | AsyncStore = URL,
        *,
        host: str = HOST,
        port: int = PORT,
        options: Options | None = None,
        tls: ServerTls | None = None,
        token: str | None = None,
        access: AccessOptions = NO_ACCESS,
    ) -> None:
        self._store = url if isinstance(url, AsyncStore) else AsyncStore(url)
        self._owns_store = self._store is not url
        self._options = options or Options()
        self._service = Service(self._store, self._options)
        self._users = UserDirectory("GOMQ", access, self._store) if access.is_on else None
        self._host, self._port, self._tls = host, port, tls
        self._authenticator = Authenticator(token, self._users)
        self._server: grpc.aio.Server | None = None
        self._handlers: Handlers | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; once it is started, the real port instead of 0."""
        return self._host, self._port

    @property
    def stats(self) -> GomqStats:
        """Counters since the start."""
        return self._service.stats

    @property
    def denials(self) -> Sequence[Denial]:
        """The calls that were denied since the start, by user and right."""
        return self._users.denials.list() if self._users else ()

    async def start(self) -> None:
        """Listen. Raises `BrokerUnavailable` (a taken port), `StoreError`, `SettingsError`."""
        try:
            await self._check_port()
            if self._users:
                await self._users.start()
            await self._service.start()
            logging.getLogger(_GRPC).addFilter(_is_worth_logging)
            # Last: gRPC does not release the port of a server that was bound but never started.
            await self._bound().start()
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """Let calls finish for *grace_s* seconds, and end the others with UNAVAILABLE.

        Calls to Watch are ended at once; their messages stay queued.
        """
        server, self._server = self._server, None
        handlers, self._handlers = self._handlers, None
        if handlers:
            handlers.close()
        if server:
            await server.stop(grace_s)
        await self._service.stop()
        if self._users:
            await self._users.stop()
        if self._owns_store:
            await self._store.close()

    async def check(self) -> None:
        """Check that Redis and the port answer. Raises `BrokerUnavailable`."""
        if self._server is None:
            raise BrokerUnavailable(self._address_text, "it is not started")
        try:
            await self._service.ping()
        except StoreError as error:
            raise BrokerUnavailable(self._address_text, error) from error
        await probe(self._host, self._port, tls=self._tls is not None)

    async def __aenter__(self) -> Self:
        """Start, and return the server itself."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    @property
    def _address_text(self) -> str:
        return format_address(self._host, self._port)

    def _bound(self) -> grpc.aio.Server:
        limit = ("grpc.max_receive_message_length", self._options.max_message_bytes)
        service = GuardedService(self._service, self._store) if self._users else self._service
        self._handlers = Handlers(service, self._authenticator)
        self._server = grpc.aio.server(handlers=self._handlers.all(), options=(*_CHANNEL, limit))
        try:
            if self._tls:
                self._port = self._server.add_secure_port(
                    self._address_text, _credentials(self._tls)
                )
            else:
                self._port = self._server.add_insecure_port(self._address_text)
        except RuntimeError as error:
            raise BrokerUnavailable(self._address_text, error) from error
        return self._server

    async def _check_port(self) -> None:
        # If a host name has several addresses, gRPC is content with one that is free, and it writes
        # its reasons to stderr only. So try each address here first.
        loop = asyncio.get_running_loop()
        try:
            for family, kind, protocol, _, address in await loop.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                _try_to_bind(socket.socket(family, kind, protocol), address)
        except OSError as error:
            raise BrokerUnavailable(self._address_text, f"cannot listen: {error}") from error


def _is_worth_logging(record: logging.LogRecord) -> bool:
    # gRPC logs a client that disconnected before its reply as an error of the server.
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


def _try_to_bind(probe: socket.socket, address: Any) -> None:
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            # On many machines localhost has the address ::1, but no interface does.
            if error.errno != errno.EADDRNOTAVAIL:
                raise


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    cert, key, client_ca = tls.pems()
    return grpc.ssl_server_credentials([(key, cert)], client_ca, client_ca is not None)
