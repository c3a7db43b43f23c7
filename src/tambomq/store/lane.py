"""One asyncio connection to Redis that any number of tasks share.

What the tasks of one turn of the loop send leaves in a few writes; replies are
handed out in order. That is why a lane carries many times what a pool of
connections does: no task waits for another's reply before it may send.
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
from tambomq.store.connect import Endpoint
from tambomq.store.trip import Address
from tambomq.store.wire import QUICK_S, check_greeting, is_near, unreachable

# Turns of the loop until it has read what is there. Two are enough for asyncio.
_PUT_OFF = 5
# If all that a turn of the loop sends left at its end, the server would idle while we work and we
# while it does. So what has gathered leaves before: four commands, or a sixth of those under way.
_ENOUGH, _SHARE = 4, 6

_Waiter: TypeAlias = tuple[int, list[Any], asyncio.Future[list[Any]]]
"""How many replies are due, those that are here, and who waits for them."""


class Lane(asyncio.Protocol):
    """A connection that has been let in. Only for the loop that opened it."""

    def __init__(
        self, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None
    ) -> None:
        """Use `open` instead."""
        self.node, self.is_replica = node, False
        self.sound = False
        """Whether it takes more calls."""
        self.reason: Exception | None = None
        """Why it broke, where that is known."""
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiters: deque[_Waiter] = deque()
        self._outbox: list[bytes] = []
        self._unsent = 0
        """How many waiters, counted from the last, have their commands in the outbox."""
        self._transport: asyncio.Transport | None = None
        self._news, self._put_off = select.poll(), 0
        self._room = asyncio.Event()
        self._room.set()
        self._retired = False
        self._on_push = on_push
        self._reply_timeout_s = endpoint.reply_timeout_s
        self._is_near, self._is_quick = is_near(endpoint, node), True
        self._looking, self._asked_at = False, 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._heard_at = 0.0

    @classmethod
    async def open(
        cls, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None = None
    ) -> Lane:
        """Connect; raise `StoreUnavailable` or `StoreRefused`.

        *on_push* gets what nobody asked for: published messages, and `None` at the end.
        """
        login = await endpoint.login_async()
        try:
            async with asyncio.timeout(endpoint.connect_timeout_s):
                lane, peer = await cls._connected(endpoint, node, on_push)
                try:
                    greeting = endpoint.greeting(login, peer)
                    replies = await lane.greet(greeting)
                    lane.is_replica = check_greeting(endpoint, greeting, replies)
                except BaseException:
                    lane.abort()
                    raise
        except (OSError, UnicodeError) as error:
            raise unreachable(endpoint, error) from error
        return lane

    @classmethod
    async def _connected(
        cls, endpoint: Endpoint, node: Address, on_push: Callable[[Any], None] | None
    ) -> tuple[Lane, Sequence[Any]]:
        loop = asyncio.get_running_loop()

        def make() -> Lane:
            return cls(endpoint, node, on_push)

        transport: asyncio.Transport
        if endpoint.path:
            transport, lane = await loop.create_unix_connection(make, endpoint.path)
        else:
            tls = endpoint.tls.context() if endpoint.tls else None
            transport, lane = await loop.create_connection(make, *node, ssl=tls)
        # uvloop writes at the end of a turn, unless more than this is waiting.
        transport.set_write_buffer_limits(high=1)
        return lane, transport.get_extra_info("peername") or ("", 0)

    async def greet(self, greeting: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Say the first words and return the replies; raise `OSError` if they do not all come."""
        packed = b"".join(map(hiredis.pack_command, greeting))
        replies: list[Any] = []
        with contextlib.suppress(StoreUnavailable):
            replies = await self.exchange(packed, len(greeting))
        if len(replies) < len(greeting):
            raise ConnectionResetError(str(self.reason or "the server closed the connection"))
        return replies

    def exchange(self, packed: bytes, due: int) -> Awaitable[list[Any]]:
        """Send commands; their replies are awaited, fewer than *due* if the connection broke.

        Raises `StoreUnavailable` if it broke before they were sent.
        """
        # No coroutine where none is needed: this is the way of every call.
        return self._post(packed, due) if self._room.is_set() else self._post_later(packed, due)

    async def _post_later(self, packed: bytes, due: int) -> list[Any]:
        while not self._room.is_set():
            await self._room.wait()
        return await self._post(packed, due)

    def _post(self, packed: bytes, due: int) -> asyncio.Future[list[Any]]:
        if not self.sound:
            raise self._never_sent()
        if not self._waiters:
            # The silence before this call is not the server's fault.
            self._heard_at = self._loop.time()
            self._look_out()
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiters.append((due, [], future))
        self._unsent += 1
        self.send(packed)
        return future

    def _look_out(self) -> None:
        """Keep the loop awake for a reply that may come sooner than a loop can be woken."""
        self._asked_at = time.perf_counter()
        if self._is_near and self._is_quick and not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = bool(self._waiters) and time.perf_counter() - self._asked_at < QUICK_S
        if self._looking:
            self._loop.call_soon(self._look)

    def send(self, packed: bytes) -> None:
        """Send commands, at once if no others are under way; replies may go to *on_push*."""
        self._outbox.append(packed)
        if len(self._waiters) == 1:
            self._flush()
        elif len(self._outbox) == 1:
            self._loop.call_soon(self._flush)
        elif (gathered := len(self._outbox)) >= _ENOUGH and gathered * _SHARE >= len(self._waiters):
            self._flush()
        if self._watch is None and self._waiters:
            # Hang up on a server that owes a reply and has said nothing for too long.
            self._watch = self._loop.call_later(self._reply_timeout_s, self._check_replies)

    def retire(self) -> None:
        """Take no more calls, and hang up when the last reply is here."""
        self._retired, self.sound = True, False
        if not self._waiters:
            self.close()

    def close(self, *, unheard: bool = False) -> None:
        """Hang up, once what was sent is on its way; *unheard*: without a push at the end."""
        self._on_push = None if unheard else self._on_push
        self.sound = False
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once."""
        self.sound = False
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None or not self._outbox or self._transport.is_closing():
            return
        if self._put_off < _PUT_OFF and self._hung_up_upon():
            # The loop was too busy to notice. It will now; `connection_lost` comes next.
            self._put_off += 1
            self._loop.call_soon(self._flush)
            return
        self._put_off = 0
        box = self._outbox
        self._transport.write(box[0] if len(box) == 1 else b"".join(box))
        self._outbox = []
        self._unsent = 0

    def _hung_up_upon(self) -> bool:
        """Whether there is something to read although no reply is due: the end of the line."""
        if len(self._waiters) > self._unsent or self._on_push is not None:
            return False
        return bool(self._news.poll(0))

    def _never_sent(self) -> StoreUnavailable:
        why = f": {self.reason}" if self.reason else ""
        return StoreUnavailable(f"the connection closed before the call was sent{why}")

    def _check_replies(self) -> None:
        self._watch = None
        if not self._waiters or self._transport is None:
            return
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= self._reply_timeout_s:
            self.reason = TimeoutError(f"no reply within {self._reply_timeout_s} s")
            self._transport.abort()
        else:
            left_s = self._reply_timeout_s - silent_s
            self._watch = self._loop.call_later(left_s, self._check_replies)

    # ── what asyncio calls ───────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        # Not isinstance: uvloop's transports are no subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self.sound = True
        link = transport.get_extra_info("socket")
        self._news.register(link.fileno(), select.POLLIN)
        if link.family != getattr(socket, "AF_UNIX", None):
            with contextlib.suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Hand replies to those who wait for them, in order."""
        self._heard_at = self._loop.time()
        self._is_quick = time.perf_counter() - self._asked_at < QUICK_S
        try:
            self._reader.feed(data)
            self._hand_out()
        except hiredis.ProtocolError as error:
            self.reason = ConnectionAbortedError(f"what answers is no Redis: {error}")
            self.abort()
        if self._retired and not self._waiters:
            self.close()

    def _hand_out(self) -> None:
        reader, waiters = self._reader, self._waiters
        while (reply := reader.gets()) is not False:
            if not waiters:
                self._unasked(reply)
                continue
            due, replies, future = waiters[0]
            replies.append(reply)
            if len(replies) == due:
                waiters.popleft()
                if not future.done():
                    future.set_result(replies)

    def _unasked(self, reply: Any) -> None:
        if self._on_push is not None:
            self._on_push(reply)
        else:
            # What it says before it hangs up on one client too many, for example.
            said = f"unasked, the server says: {reply}"
            self.reason = self.reason or ConnectionAbortedError(said)
            self.abort()

    def pause_writing(self) -> None:
        """Let senders wait: the server does not keep up."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Let senders go on."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who wait that no more is coming."""
        self.reason = self.reason or exc
        self._transport, self.sound = None, False
        self._room.set()
        if self._watch is not None:
            self._watch.cancel()
        sent = len(self._waiters) - self._unsent
        for place, (_, replies, future) in enumerate(self._waiters):
            if future.done():
                continue
            if place < sent:
                future.set_result(replies)
            else:
                future.set_exception(self._never_sent())
        self._waiters.clear()
        if self._on_push is not None:
            self._on_push(None)
