"""One asyncio connection to Redis that any number of tasks share.

What the tasks of one turn of the loop send leaves in one write; replies are
handed out in order. That is why a lane carries many times what a pool of
connections does: no task waits for another's reply before it may send.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from tambomq.errors import StoreUnavailable
from tambomq.store.connect import Endpoint
from tambomq.store.trip import Address
from tambomq.store.wire import check_greeting


class _Waiter:
    __slots__ = ("due", "future", "replies")

    def __init__(self, due: int, future: asyncio.Future[list[Any]]) -> None:
        self.due, self.future = due, future
        self.replies: list[Any] = []


class Lane(asyncio.Protocol):
    """A connection that has been let in. Only for the loop that opened it."""

    def __init__(self, reply_timeout_s: float, on_push: Callable[[Any], None] | None) -> None:
        """Use `open` instead."""
        self.loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiters: deque[_Waiter] = deque()
        self._outbox: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._on_push = on_push
        self._reply_timeout_s = reply_timeout_s
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    @classmethod
    async def open(
        cls, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None = None
    ) -> Lane:
        """Connect; raise `StoreUnavailable` or `StoreRefused`.

        *on_push* gets what nobody asked for: published messages.
        """
        loop = asyncio.get_running_loop()
        login = await endpoint.login_async()

        def make() -> Lane:
            return cls(endpoint.reply_timeout_s, on_push)

        try:
            async with asyncio.timeout(endpoint.connect_timeout_s):
                if endpoint.path:
                    _, lane = await loop.create_unix_connection(make, endpoint.path)
                else:
                    tls = endpoint.tls.context() if endpoint.tls else None
                    _, lane = await loop.create_connection(make, *node, ssl=tls)
                greeting = endpoint.greeting(login)
                packed = b"".join(map(hiredis.pack_command, greeting))
                replies = await lane.exchange(packed, len(greeting))
        except OSError as error:
            what = str(error) or "no answer in time"
            raise StoreUnavailable(f"cannot reach {endpoint}: {what}") from error
        try:
            check_greeting(endpoint, greeting, replies)
        except Exception:
            lane.close()
            raise
        return lane

    @property
    def sound(self) -> bool:
        """Whether it can still carry anything."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, packed: bytes, due: int) -> list[Any]:
        """Send commands and return their replies; fewer than *due* if the connection broke."""
        while not self._room.is_set():
            await self._room.wait()
        future: asyncio.Future[list[Any]] = self.loop.create_future()
        if not self.sound:
            return []
        self._waiters.append(_Waiter(due, future))
        self.send(packed)
        return await future

    def send(self, packed: bytes) -> None:
        """Send commands whose replies go to *on_push*."""
        if not self._outbox:
            self.loop.call_soon(self._flush)
        self._outbox.append(packed)
        if self._watch is None and self._waiters:
            self._watch_replies()

    def close(self) -> None:
        """Hang up, once what was sent is on its way."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._outbox and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
            self._outbox.clear()

    def _watch_replies(self) -> None:
        """Hang up on a server that owes a reply and has said nothing for too long."""
        self._heard_at = self.loop.time()
        self._watch = self.loop.call_later(self._reply_timeout_s, self._check_replies)

    def _check_replies(self) -> None:
        self._watch = None
        if not self._waiters or self._transport is None:
            return
        silent_s = self.loop.time() - self._heard_at
        if silent_s >= self._reply_timeout_s:
            self._transport.abort()
        else:
            self._watch = self.loop.call_later(
                self._reply_timeout_s - silent_s, self._check_replies
            )

    # ── what asyncio calls ───────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        # Not isinstance: uvloop's transports are no subclasses.
        self._transport = cast("asyncio.Transport", transport)
        link = transport.get_extra_info("socket")
        if link is not None and link.family != getattr(socket, "AF_UNIX", None):
            with contextlib.suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them, in order."""
        self._heard_at = self.loop.time()
        reader, waiters = self._reader, self._waiters
        reader.feed(data)
        while (reply := reader.gets()) is not False:
            if not waiters:
                if self._on_push is not None:
                    self._on_push(reply)
                continue
            waiter = waiters[0]
            waiter.replies.append(reply)
            if len(waiter.replies) == waiter.due:
                waiters.popleft()
                if not waiter.future.done():
                    waiter.future.set_result(waiter.replies)

    def pause_writing(self) -> None:
        """Let senders wait: the server does not keep up."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let senders go on."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait that no more is coming."""
        del exc
        self._transport = None
        self._room.set()
        if self._watch is not None:
            self._watch.cancel()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.future.done():
                waiter.future.set_result(waiter.replies)
        if self._on_push is not None:
            self._on_push(None)
