"""GOMQ's door: gRPC in, `Service` behind it. Nothing here knows what a call means."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from types import TracebackType
from typing import Any, Final, Self

import grpc

from tambomq.errors import BrokerUnavailable, StoreError
from tambomq.gomq.caller import Gate
from tambomq.gomq.handlers import Handlers
from tambomq.gomq.model import Options
from tambomq.gomq.probe import probe
from tambomq.gomq.service import Service, Stats
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import URL
from tambomq.tls import ServerTls

HOST: Final = "127.0.0.1"
PORT: Final = 10001

_UNLIMITED: Final = -1
_GRPC: Final = "grpc._cython.cygrpc"
_CHANNEL: Final = (
    # Two servers on one port would each have half of the clients.
    ("grpc.so_reuseport", 0),
    # What the service hands out has its own limit.
    ("grpc.max_send_message_length", _UNLIMITED),
    # A client that vanished without a word is noticed within 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients may look after us as well; gRPC's own limit of 5 minutes would cut them off.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


class GomqServer:
    """A GOMQ server on *host* and *port*; port 0 is any that is free.

    *url* is the Redis that keeps everything, or a store, which stays open then. With *token* every
    call needs it as a bearer token, but for health checks. Use it with ``async with``, or `start`
    and `stop`.
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
    ) -> None:
        self._store = url if isinstance(url, AsyncStore) else AsyncStore(url)
        self._owns_store = self._store is not url
        self._options = options or Options()
        self._service = Service(self._store, self._options)
        self._host, self._port, self._tls, self._gate = host, port, tls, Gate(token)
        self._server: grpc.aio.Server | None = None
        self._handlers: Handlers | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: host and port; once it is started never port 0."""
        return self._host, self._port

    @property
    def stats(self) -> Stats:
        """What it has done so far."""
        return self._service.stats

    async def start(self) -> None:
        """Listen. Raises `BrokerUnavailable` (a taken port), `StoreError`, `SettingsError`."""
        try:
            await self._check_port()
            await self._service.start()
            logging.getLogger(_GRPC).addFilter(_is_news)
            # At the end: gRPC keeps the port of a server that was never started.
            await self._bound().start()
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float = 5.0) -> None:
        """Let calls finish for *grace_s* seconds, and end the others with UNAVAILABLE.

        Those that watch are ended at once. What they were owed is kept.
        """
        server, self._server = self._server, None
        handlers, self._handlers = self._handlers, None
        if handlers:
            handlers.close()
        if server:
            await server.stop(grace_s)
        await self._service.stop()
        if self._owns_store:
            await self._store.close()

    async def check(self) -> None:
        """Ask itself, as a client would, whether it answers. Raises `BrokerUnavailable`."""
        if self._server is None:
            raise BrokerUnavailable(self._where, "it is not started")
        try:
            await self._service.ping()
        except StoreError as error:
            raise BrokerUnavailable(self._where, error) from error
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
    def _where(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def _bound(self) -> grpc.aio.Server:
        limit = ("grpc.max_receive_message_length", self._options.max_message_bytes)
        self._handlers = Handlers(self._service, self._gate)
        self._server = grpc.aio.server(handlers=self._handlers.all(), options=(*_CHANNEL, limit))
        try:
            if self._tls:
                self._port = self._server.add_secure_port(self._where, _credentials(self._tls))
            else:
                self._port = self._server.add_insecure_port(self._where)
        except RuntimeError as error:
            raise BrokerUnavailable(self._where, error) from error
        return self._server

    async def _check_port(self) -> None:
        # gRPC is content with one address of a name where the others are taken, and it tells its
        # reasons on stderr alone. So each is tried here first.
        loop = asyncio.get_running_loop()
        try:
            for family, kind, protocol, _, address in await loop.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                _try_to_bind(socket.socket(family, kind, protocol), address)
        except OSError as error:
            raise BrokerUnavailable(self._where, f"cannot listen: {error}") from error


def _is_news(record: logging.LogRecord) -> bool:
    # For gRPC a client that left before its reply is an error of the server's.
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, grpc.aio.InternalError)


def _try_to_bind(probe: socket.socket, address: Any) -> None:
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            # Many a machine calls ::1 localhost and has no such address.
            if error.errno != errno.EADDRNOTAVAIL:
                raise


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    cert, key, client_ca = tls.pems()
    return grpc.ssl_server_credentials([(key, cert)], client_ca, client_ca is not None)
