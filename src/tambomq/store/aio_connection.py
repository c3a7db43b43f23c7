"""One asyncio connection to Redis that any number of tasks share.

The commands of one turn of the loop leave in a few writes; replies are matched in order. No task
waits for another's reply before it sends, so one connection has many times a pool's throughput.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

import hiredis

from tambomq.errors import StoreUnavailable
from tambomq.store.call import Arg
from tambomq.store.endpoint import Endpoint
from tambomq.store.roundtrip import Address
from tambomq.store.sync_connection import FAST_S, PAUSE_S, check_handshake, is_local, unreachable

_FLUSH_RETRIES = 5  # turns of the loop until it has read pending data; asyncio needs two
# If all commands of a turn left at its end, the server would idle while we work, and we while it
# does. So a batch leaves early: at four commands and a sixth of those in flight.
_ENOUGH, _SHARE = 4, 6

_Waiter: TypeAlias = tuple[int, list[Any], asyncio.Future[list[Any]]]
"""How many replies are expected, those received so far, and the future that waits for them."""


class AioConnection(asyncio.Protocol):
    """An authenticated connection. Only for the event loop that opened it."""

    def __init__(
        self, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None
    ) -> None:
        """Use `open` instead."""
        self.node, self.is_replica = node, False
        self.is_usable = False
        """Whether it accepts calls."""
        self.reason: Exception | None = None
        """Why it broke, if known."""
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiters: deque[_Waiter] = deque()
        self._unwritten: list[bytes] = []
        self._unsent = 0
        """How many waiters, counted from the last, have their commands in `_unwritten`."""
        self._transport: asyncio.Transport | None = None
        self._poller, self._flush_retries = select.poll(), 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._retired = False
        self._on_push = on_push
        self.reply_timeout_s = endpoint.reply_timeout_s
        """How long the server may stay silent while it owes a reply."""
        self._is_local, self._is_fast = is_local(endpoint, node), True
        self._is_polling, self._sent_at, self._last_reply_at = False, 0.0, 0.0
        self._reply_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None = None
    ) -> AioConnection:
        """Connect; raise `StoreUnavailable` or `StoreRefused`.

        *on_push* gets published messages, and `None` when the connection ends.
        """
        login = await endpoint.login_async()
        try:
            async with asyncio.timeout(endpoint.connect_timeout_s):
                connection, peer = await cls._connected(endpoint, node, on_push)
                try:
                    commands = endpoint.handshake_commands(login, peer)
                    replies = await connection.handshake(commands)
                    connection.is_replica = check_handshake(endpoint, commands, replies)
                except BaseException:
                    connection.abort()
                    raise
        except (OSError, UnicodeError) as error:
            raise unreachable(endpoint, error) from error
        return connection

    @classmethod
    async def _connected(
        cls, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None
    ) -> tuple[AioConnection, Sequence[Any]]:
        loop = asyncio.get_running_loop()

        def make() -> AioConnection:
            return cls(endpoint, node, on_push)

        transport: asyncio.Transport
        if endpoint.path:
            transport, connection = await loop.create_unix_connection(make, endpoint.path)
        else:
            tls = endpoint.tls.context() if endpoint.tls else None
            transport, connection = await loop.create_connection(make, *node, ssl=tls)
        # uvloop writes at the end of a turn, unless more than this is buffered.
        transport.set_write_buffer_limits(high=1)
        return connection, transport.get_extra_info("peername") or ("", 0)

    async def handshake(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Send the handshake and return the replies; raise `OSError` if some are missing."""
        packed = b"".join(map(hiredis.pack_command, commands))
        replies: list[Any] = []
        with contextlib.suppress(StoreUnavailable):
            replies = await self.exchange(packed, len(commands))
        if len(replies) < len(commands):
            raise ConnectionResetError(str(self.reason or "the server closed the connection"))
        return replies

    def exchange(self, packed: bytes, due: int) -> Awaitable[list[Any]]:
        """Send commands; await their replies, fewer than *due* if the connection broke.

        Raises `StoreUnavailable` if it broke before they were sent.
        """
        # No coroutine unless needed: every call comes through here.
        if not self._writable.is_set():
            return self._exchange_later(packed, due)
        if not self.is_usable:
            raise self._never_sent()
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiters.append((due, [], future))
        self._unsent += 1
        self.send(packed)
        # Whatever can wait comes after the command: the server works on it meanwhile.
        if len(self._waiters) == 1:
            # The reply timeout starts now: the server owed nothing before.
            self._last_reply_at = self._loop.time()
            self._start_busy_poll()
        return future

    async def _exchange_later(self, packed: bytes, due: int) -> list[Any]:
        while not self._writable.is_set():
            await self._writable.wait()
        return await self.exchange(packed, due)

    def _start_busy_poll(self) -> None:
        """Keep the loop spinning: a local reply may come sooner than a sleeping loop wakes up."""
        now = time.perf_counter()
        is_steady, self._sent_at = now - self._sent_at < PAUSE_S, now
        if is_steady and self._is_local and self._is_fast and not self._is_polling:
            self._is_polling = True
            self._loop.call_soon(self._busy_poll)

    def _busy_poll(self) -> None:
        self._is_polling = bool(self._waiters) and time.perf_counter() - self._sent_at < FAST_S
        if self._is_polling:
            self._loop.call_soon(self._busy_poll)

    def send(self, packed: bytes) -> None:
        """Send commands, at once if no others are in flight; replies may go to *on_push*."""
        self._unwritten.append(packed)
        if len(self._waiters) == 1:
            self._flush()
        elif len(self._unwritten) == 1:
            self._loop.call_soon(self._flush)
        elif (count := len(self._unwritten)) >= _ENOUGH and count * _SHARE >= len(self._waiters):
            self._flush()
        if self._reply_timer is None and self._waiters:
            # Close the connection if the server owes a reply and stays silent for too long.
            self._reply_timer = self._loop.call_later(self.reply_timeout_s, self._check_replies)

    def retire(self) -> None:
        """Accept no more calls, and close when the last reply has come."""
        self._retired, self.is_usable = True, False
        if not self._waiters:
            self.close()

    def close(self, *, silent: bool = False) -> None:
        """Close after sending what is buffered; *silent*: without a last call of *on_push*."""
        self._on_push = None if silent else self._on_push
        self.is_usable = False
        self._flush()
        if (transport := self._transport) is not None:
            # Closing TLS waits for the server's answer, and the loop may end before that comes.
            waits = transport.get_extra_info("ssl_object") and not transport.get_write_buffer_size()
            (transport.abort if waits else transport.close)()

    def abort(self) -> None:
        """Close at once."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None or not self._unwritten or self._transport.is_closing():
            return
        if self._flush_retries < _FLUSH_RETRIES and self._closed_by_server():
            # The loop has not noticed the end yet: let `connection_lost` run before a write.
            self._flush_retries += 1
            self._loop.call_soon(self._flush)
            return
        self._flush_retries = 0
        packed = self._unwritten
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))
        self._unwritten, self._unsent = [], 0

    def _closed_by_server(self) -> bool:
        """Whether there is something to read though no reply is due: the end of the stream."""
        if len(self._waiters) > self._unsent or self._on_push is not None:
            return False
        return bool(self._poller.poll(0))

    def _never_sent(self) -> StoreUnavailable:
        why = f": {self.reason}" if self.reason else ""
        return StoreUnavailable(f"the connection closed before the call was sent{why}")

    def _check_replies(self) -> None:
        self._reply_timer = None
        if not self._waiters or self._transport is None:
            return
        silent_s = self._loop.time() - self._last_reply_at
        if silent_s >= self.reply_timeout_s:
            self.reason = TimeoutError(f"no reply within {self.reply_timeout_s} s")
            self._transport.abort()
        else:
            left_s = self.reply_timeout_s - silent_s
            self._reply_timer = self._loop.call_later(left_s, self._check_replies)

    # ── asyncio.Protocol ─────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # Not isinstance: uvloop's transports are no subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self.is_usable = True
        sock = transport.get_extra_info("socket")
        self._poller.register(sock.fileno(), select.POLLIN)
        if sock.family != getattr(socket, "AF_UNIX", None):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Resolve pending calls with their replies, in order."""
        self._last_reply_at = self._loop.time()
        self._is_fast = time.perf_counter() - self._sent_at < FAST_S
        try:
            self._reader.feed(data)
            self._resolve_replies()
        except hiredis.ProtocolError as error:
            self.reason = ConnectionAbortedError(f"the reply is not Redis protocol: {error}")
            self.abort()
        if self._retired and not self._waiters:
            self.close()

    def _resolve_replies(self) -> None:
        reader, waiters = self._reader, self._waiters
        while (reply := reader.gets()) is not False:
            if not waiters:
                self._on_unsolicited(reply)
                continue
            due, replies, future = waiters[0]
            replies.append(reply)
            if len(replies) == due:
                waiters.popleft()
                if not future.done():
                    future.set_result(replies)

    def _on_unsolicited(self, reply: Any) -> None:
        if self._on_push is not None:
            self._on_push(reply)
        else:
            # For example "max number of clients reached", sent before the server closes.
            reason = f"unexpected message from the server: {reply}"
            self.reason = self.reason or ConnectionAbortedError(reason)
            self.abort()

    def pause_writing(self) -> None:
        """Block senders: the server does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Unblock senders."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail or complete all pending calls."""
        self.reason = self.reason or exc
        self._transport, self.is_usable = None, False
        self._writable.set()
        if self._reply_timer is not None:
            self._reply_timer.cancel()
        sent = len(self._waiters) - self._unsent
        for index, (_, replies, future) in enumerate(self._waiters):
            if future.done():
                continue
            if index < sent:
                future.set_result(replies)
            else:
                future.set_exception(self._never_sent())
        self._waiters.clear()
        if self._on_push is not None:
            self._on_push(None)
