"""A KqueueMsgQ server: it listens, and everything else happens between its peers.

Runs on the loop it is started on, asyncio's own or uvloop's. Keeps nothing on disk, and a
message only until those who are subscribed when it arrives have it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self, get_args

from tambomq.errors import BrokerUnavailable, InvalidValue
from tambomq.journal.recording import BOUNDS, Bounds, Recording
from tambomq.kqueue.flow import Slow
from tambomq.kqueue.frames import LIMITS, Limits
from tambomq.kqueue.model import Stats
from tambomq.kqueue.peer import Peer
from tambomq.kqueue.probe import probe
from tambomq.kqueue.recorder import Recorder
from tambomq.kqueue.room import Room, Rules
from tambomq.store.connect import URL
from tambomq.tls import ServerTls

HOST: Final = "127.0.0.1"
PORT: Final = 8000
GRACE_S: Final = 5.0

_BACKLOG = 1024
_LAST_PORT = 65535
# A client that vanished without a word is noticed after two minutes. Sockets that are accepted
# inherit all this from the one that listens.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (asked for, not bound to)


class KqueueServer:
    """A KqueueMsgQ server, started by `start` or ``async with``.

    *slow* says what happens when *max_buffer_bytes* wait for a consumer: it loses its
    connection (``disconnect``), it loses messages (``drop``), or who sends them waits
    (``block``). *handshake_s* is how long a client may take to say what it is,
    *frame_s* how long a frame may take from its first byte to its last.

    *max_memory_bytes* is what all clients together may hold: unfinished frames, names of
    subscriptions, and messages that wait for consumers. Beyond it, those who hold it longest or
    most are disconnected.

    *journal*: messages to queues of these names or patterns are recorded, within
    *journal_bounds*, in the Redis at *url*, which is needed for nothing else.
    """

    def __init__(  # noqa: PLR0913  (each is a setting of its own)
        self,
        host: str = HOST,
        port: int = PORT,
        *,
        limits: Limits = LIMITS,
        slow: Slow = "disconnect",
        max_buffer_bytes: int = 8 * 1024 * 1024,
        max_connections: int = 10_000,
        handshake_s: float = 10.0,
        ok_replies: bool = False,
        max_memory_bytes: int = 256 * 1024 * 1024,
        frame_s: float = 30.0,
        tls: ServerTls | None = None,
        journal: Iterable[str] = (),
        journal_bounds: Bounds = BOUNDS,
        url: str = URL,
    ) -> None:
        """Remember what was asked for; `start` listens."""
        if slow not in get_args(Slow):
            raise InvalidValue("slow", slow, "disconnect, drop or block")
        # uvloop would listen on some other port instead.
        if not 0 <= port <= _LAST_PORT:
            raise InvalidValue("port", port, f"between 0 and {_LAST_PORT}")
        rules = Rules(
            limits, slow, max_buffer_bytes, max_connections, handshake_s, ok_replies,
            max_memory_bytes, frame_s,
        )  # fmt: skip
        _check(rules)
        self._host, self._port, self._tls = host, port, tls
        self._room = Room(rules)
        self._recording, self._url = Recording("kqueue", journal, journal_bounds), url
        self._recorder: Recorder | None = None
        self._server: asyncio.Server | None = None
        self._bound: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it listens on, known once it is started."""
        return self._bound or (self._host, self._port)

    @property
    def stats(self) -> Stats:
        """What there is now, and what has happened since it was made."""
        return self._room.stats

    async def start(self) -> None:
        """Listen.

        Raises `BrokerUnavailable` where that cannot be, `SettingsError` for TLS, and `StoreError`
        for a journal that cannot be reached.
        """
        if self._server is not None:
            return
        await self._record()
        context = self._tls.context() if self._tls else None
        loop, room = asyncio.get_running_loop(), self._room
        try:
            server = await loop.create_server(
                lambda: Peer(room),
                self._host,
                self._port,
                backlog=_BACKLOG,
                ssl=context,
                ssl_handshake_timeout=room.rules.handshake_s if context else None,
                start_serving=False,
            )
        except (OSError, UnicodeError) as error:
            await self._record_no_more(0)
            raise BrokerUnavailable(f"{self._host}:{self._port}", error) from error
        self._server, room.is_closing = server, False
        for each in server.sockets:
            _keep_alive(each)
        host, port, *_ = server.sockets[0].getsockname()
        self._bound = (host, port)
        await server.start_serving()

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Take nothing more, write what waits for consumers for up to *grace_s*, then close."""
        server, self._server = self._server, None
        self._room.is_closing = True
        if server is not None:
            server.close()
        for peer in list(self._room.open):
            peer.close()
        try:
            async with asyncio.timeout(grace_s):
                await self._room.empty()
        except TimeoutError:
            pass
        finally:
            for peer in list(self._room.open):
                peer.abort()
        await self._room.empty()
        self._room.stop_timer()
        await self._record_no_more(grace_s)

    async def check(self) -> None:
        """Ask itself, as a client would, whether it answers. Raises `BrokerUnavailable`."""
        host, port = self.address
        if self._server is None:
            raise BrokerUnavailable(f"{host}:{port}", "it is not running")
        is_let_in = await probe(_LOOPBACK.get(host, host), port, tls=self._tls is not None)
        if is_let_in or (self._tls and self._tls.client_ca):
            return
        if self._room.connections < self._room.rules.max_connections:
            raise BrokerUnavailable(f"{host}:{port}", "it does not answer a probe")

    async def _record(self) -> None:
        if self._recording.patterns and self._recorder is None:
            self._recorder = Recorder(self._url, self._recording, self._room.counters)
            self._room.note = self._recorder.note
            try:
                await self._recorder.start()
            except BaseException:
                await self._record_no_more(0)
                raise

    async def _record_no_more(self, within_s: float) -> None:
        recorder, self._recorder, self._room.note = self._recorder, None, None
        if recorder is not None:
            await recorder.close(within_s)

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


def _check(rules: Rules) -> None:
    for what in ("max_buffer_bytes", "max_connections", "handshake_s", "frame_s"):
        if getattr(rules, what) <= 0:
            raise InvalidValue(what, getattr(rules, what), "more than 0")
    longest = rules.limits.message_bytes
    if rules.max_memory_bytes < longest:
        least = f"at least the longest message, {longest} bytes"
        raise InvalidValue("max_memory_bytes", rules.max_memory_bytes, least)


def _keep_alive(listening: socket.socket) -> None:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
