"""The KqueueMsgQ server: listens, creates a `Peer` per connection, and shuts down in order.

Runs on the event loop that starts it, asyncio's or uvloop's. Stores nothing on disk, and keeps a
message only until it is written to those subscribed at its arrival.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self, get_args

from tambomq.access.denials import Denial
from tambomq.access.directory import NO_ACCESS, AccessOptions, UserDirectory
from tambomq.errors import BrokerUnavailable, InvalidValue, SettingsError
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.kqueue.broker import BrokerOptions, BrokerState
from tambomq.kqueue.delivery import SlowConsumerPolicy
from tambomq.kqueue.frames import LIMITS, Limits
from tambomq.kqueue.guard.admission import PeerPolicy
from tambomq.kqueue.guard.peer import GuardedPeer
from tambomq.kqueue.model import ConnectionInfo, QueueTraffic, Stats
from tambomq.kqueue.peer import Peer
from tambomq.kqueue.probe import probe
from tambomq.kqueue.recorder import Recorder
from tambomq.runtime.tls_server import TlsServer
from tambomq.store.aio import AsyncStore
from tambomq.store.durability.level import MEMORY, durability
from tambomq.store.endpoint import URL
from tambomq.tls import ServerTls

HOST: Final = "127.0.0.1"
PORT: Final = 8000
GRACE_S: Final = 5.0

_BACKLOG = 1024
_LAST_PORT = 65535
# A client that vanished without closing is detected after two minutes. Accepted sockets inherit
# these options from the listening one.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (compared with, not bound to)


class KqueueServer:
    """A KqueueMsgQ server, started by `start` or ``async with``.

    *slow* is the policy for a consumer whose write buffer has reached *max_buffer_bytes*: close
    its connection (``disconnect``), skip messages (``drop``), or pause the producers
    (``block``). *handshake_s* limits the time until a client has sent its role, *frame_s*
    the time from the first byte of a frame to its last.

    *max_memory_bytes* limits the memory of all clients together: incomplete frames,
    subscriptions and write buffers. Beyond it, the oldest and largest holders are disconnected.

    *journal*: messages to queues of these names or patterns are recorded, within
    *journal_bounds*, in the Redis at *url*, each batch with the level of durability
    *journal_durable*.

    *access*: clients are users with rights, recognised by their certificates: *tls* must demand
    one. Redis, at *url*, is used only for journals and for users that are kept there.
    """

    def __init__(  # noqa: PLR0913  (each is a setting of its own)
        self,
        host: str = HOST,
        port: int = PORT,
        *,
        limits: Limits = LIMITS,
        slow: SlowConsumerPolicy = "disconnect",
        max_buffer_bytes: int = 8 * 1024 * 1024,
        max_connections: int = 10_000,
        handshake_s: float = 10.0,
        ok_replies: bool = False,
        max_memory_bytes: int = 256 * 1024 * 1024,
        frame_s: float = 30.0,
        tls: ServerTls | None = None,
        journal: Iterable[str] = (),
        journal_bounds: JournalBounds = DEFAULT_BOUNDS,
        journal_durable: str = MEMORY,
        url: str = URL,
        access: AccessOptions = NO_ACCESS,
    ) -> None:
        """Check and store the options; `start` listens."""
        if slow not in get_args(SlowConsumerPolicy):
            raise InvalidValue("slow", slow, "disconnect, drop or block")
        # uvloop would silently listen on another port.
        if not 0 <= port <= _LAST_PORT:
            raise InvalidValue("port", port, f"between 0 and {_LAST_PORT}")
        options = BrokerOptions(
            limits, slow, max_buffer_bytes, max_connections, handshake_s, ok_replies,
            max_memory_bytes, frame_s,
        )  # fmt: skip
        _check_options(options)
        self._host, self._port, self._tls = host, port, tls
        self._broker = BrokerState(options)
        self._journal_policy, self._url = JournalPolicy("kqueue", journal, journal_bounds), url
        durability(journal_durable)
        self._journal_durable = journal_durable
        self._recorder: Recorder | None = None
        self._users = _users(access, tls, url)
        self._server: asyncio.Server | TlsServer | None = None
        self._bound: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the listening socket; the port is known once it is started."""
        return self._bound or (self._host, self._port)

    @property
    def stats(self) -> Stats:
        """Current gauges, and counters since it was created."""
        return self._broker.stats

    @property
    def max_buffer_bytes(self) -> int:
        """How many bytes a consumer may be behind before it counts as slow."""
        return self._broker.options.max_buffer_bytes

    @property
    def denials(self) -> Sequence[Denial]:
        """The connections that were closed for want of a right, by user and right."""
        return self._users.denials.list() if self._users else ()

    def list_queues(self) -> Sequence[QueueTraffic]:
        """Return the queues with messages or subscribers lately, by name.

        At most 1,000. Their counts are estimates if many messages arrive in one read.
        """
        return self._broker.list_queues()

    def list_connections(self, limit: int) -> Sequence[ConnectionInfo]:
        """Return up to *limit* connections, those with the fullest write buffers first."""
        return self._broker.list_connections(limit)

    async def start(self) -> None:
        """Listen.

        Raises `BrokerUnavailable` if the address cannot be bound, `SettingsError` for TLS, and
        `StoreError` if the Redis of the journal is unreachable.
        """
        if self._server is not None:
            return
        try:
            await self._start_recording()
            await self._start_users()
            await self._listen()
        except (OSError, UnicodeError) as error:
            await self.stop(0)
            raise BrokerUnavailable(f"{self._host}:{self._port}", error) from error
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Stop reading, flush write buffers for up to *grace_s*, then close all connections."""
        server, self._server = self._server, None
        self._broker.is_closing = True
        if server is not None:
            server.close()
        if isinstance(server, TlsServer):
            await server.wait_closed()
        for peer in list(self._broker.peers):
            peer.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._broker.wait_disconnected()
        except TimeoutError:
            pass
        finally:
            for peer in list(self._broker.peers):
                peer.abort()
        await self._broker.wait_disconnected()
        self._broker.stop_timer()
        await self._stop_recording(grace_s)
        await self._stop_users()

    async def check(self) -> None:
        """Probe its own port as a client would. Raises `BrokerUnavailable`."""
        host, port = self.address
        if self._server is None:
            raise BrokerUnavailable(f"{host}:{port}", "it is not running")
        is_accepted = await probe(_LOOPBACK.get(host, host), port, tls=self._tls is not None)
        if is_accepted or (self._tls and self._tls.client_ca):
            return
        if self._broker.connections < self._broker.options.max_connections:
            raise BrokerUnavailable(f"{host}:{port}", "it does not answer a probe")

    async def _listen(self) -> None:
        context = self._tls.context() if self._tls else None
        loop, broker, address = asyncio.get_running_loop(), self._broker, (self._host, self._port)
        self._server = server = (
            await TlsServer.bind(address, context, PeerPolicy(broker, self._make_peer))
            if context is not None
            else await loop.create_server(
                self._make_peer, *address, backlog=_BACKLOG, start_serving=False
            )
        )
        broker.is_closing = False
        for each in server.sockets:
            _enable_keepalive(each)
        host, port, *_ = server.sockets[0].getsockname()
        self._bound = (host, port)
        await server.start_serving()

    async def _start_recording(self) -> None:
        if self._journal_policy.patterns and self._recorder is None:
            self._recorder = Recorder(
                self._url, self._journal_policy, self._broker.counters, self._journal_durable
            )
            self._broker.on_published = self._recorder.record
            await self._recorder.start()

    async def _stop_recording(self, within_s: float) -> None:
        recorder, self._recorder, self._broker.on_published = self._recorder, None, None
        if recorder is not None:
            await recorder.close(within_s)

    def _make_peer(self) -> Peer:
        return GuardedPeer(self._broker, self._users) if self._users else Peer(self._broker)

    async def _start_users(self) -> None:
        if self._users is not None:
            self._users.on_change = self._recheck
            await self._users.start()

    async def _stop_users(self) -> None:
        if self._users is not None:
            await self._users.stop()

    def _recheck(self) -> None:
        for peer in list(self._broker.peers):
            if isinstance(peer, GuardedPeer):
                peer.recheck()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        await self.stop()


def _users(access: AccessOptions, tls: ServerTls | None, url: str) -> UserDirectory | None:
    if not access.is_on:
        return None
    if tls is None or tls.client_ca is None:
        raise SettingsError(
            "KqueueMsgQ has no tokens: with users it needs client certificates "
            "(--kqueue-tls-cert, --kqueue-tls-key, --kqueue-tls-client-ca), or leave it out "
            "with --no-kqueue"
        )
    # A store connects when it is used first.
    store = AsyncStore(url) if access.redis else None
    return UserDirectory("KqueueMsgQ", access, store, owns_store=True)


def _check_options(options: BrokerOptions) -> None:
    for name in ("max_buffer_bytes", "max_connections", "handshake_s", "frame_s"):
        if getattr(options, name) <= 0:
            raise InvalidValue(name, getattr(options, name), "more than 0")
    longest = options.limits.message_bytes
    if options.max_memory_bytes < longest:
        minimum = f"at least the longest message, {longest} bytes"
        raise InvalidValue("max_memory_bytes", options.max_memory_bytes, minimum)


def _enable_keepalive(listening: socket.socket) -> None:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
