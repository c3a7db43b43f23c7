"""One connection of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.connection import Connection, Role
from tambomq.kqueue.frames import OK, SUBSCRIBE, Request
from tambomq.kqueue.room import Room


class Peer(asyncio.BufferedProtocol):
    """What one client says is understood here, and done."""

    __slots__ = (
        "_accepted_at",
        "_connection",
        "_is_in",
        "_is_over",
        "_is_paused",
        "_is_unfinished",
        "_room",
        "_timer",
        "_transport",
        "full",
        "is_closing",
        "write",
    )

    def __init__(self, room: Room) -> None:
        self._room = room
        # With TLS the connection is made later, when that handshake is over.
        self._accepted_at = asyncio.get_running_loop().time()
        self._connection = Connection(
            room.exchange.routes, room.rules.limits, lenient=room.rules.ok_replies
        )
        self._is_in = self._is_over = self._is_paused = self._is_unfinished = self.full = False
        self._timer: asyncio.TimerHandle | None = None

    # ── what the loop tells ──────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (what a TCP server makes)
        """Let the client in, if there is room."""
        room, rules = self._room, self._room.rules
        room.open.add(self)
        self._transport = transport
        # Looked up once instead of for each delivery.
        self.write: Callable[[bytes | memoryview], None] = transport.write
        self.is_closing: Callable[[], bool] = transport.is_closing
        if room.is_closing:
            self.abort()
            return
        if room.connections >= rules.max_connections:
            room.counters.refused += 1
            self.abort()
            return
        self._is_in = True
        room.connections += 1
        room.counters.accepted += 1
        # Transports tell when there is more than `high`; full is what has reached the bound.
        high = rules.max_buffer_bytes - 1
        transport.set_write_buffer_limits(high, high // 2 if rules.slow == "block" else high)
        self._timer = asyncio.get_running_loop().call_at(
            self._accepted_at + rules.handshake_s, self._too_late
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Return where to read into."""
        return self._room.view

    def buffer_updated(self, nbytes: int) -> None:
        """Do what the bytes read mean."""
        if self._is_over:
            return
        room = self._room
        received = self._connection.receive(room.view[:nbytes])
        done, error = 0, received.error
        if received.role is not None:
            self._introduce(received.role)
            done = 1
        if received.runs:
            room.flow.deliver(self, received.data, received.runs)
            if room.note is not None:
                room.note(received.data, received.runs)
        elif received.requests:
            try:
                self._obey(received.requests)
            except RemoteProtocolError as refusal:
                error = refusal
        room.counters.protocol_errors += received.junk
        if room.rules.ok_replies and not self._is_over:
            done += received.junk + len(received.requests) + sum(run[3] for run in received.runs)
            room.flow.reply(self, done)
        if error is not None:
            room.counters.protocol_errors += 1
            self._close_for(logging.INFO, error)
        elif self._is_unfinished or self._connection.unfinished:
            self._note_frame()

    def eof_received(self) -> None:
        """Take the client's leave; what waits for it is still written, for a while."""
        self._leave()
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(
            self._room.rules.handshake_s, self._transport.abort
        )

    def pause_writing(self) -> None:
        """Note that as much waits for the client as may."""
        self.full = True

    def resume_writing(self) -> None:
        """Note that there is room again."""
        self.full = False
        self._room.flow.free(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (whatever the reason)
        """Forget the client."""
        self._leave()
        self._stop_timer()
        room = self._room
        if self._is_in:
            room.connections -= 1
            room.producers -= self._connection.role is Role.PRODUCER
            room.consumers -= self._connection.role is Role.CONSUMER
        room.left(self)

    # ── what others do with it ───────────────────────────────────────────────

    def pause(self) -> None:
        """Stop reading."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._is_paused = False
        if not self._transport.is_closing():
            now = asyncio.get_running_loop().time()
            self._room.unfinished.restart(self, now)
            self._transport.resume_reading()

    def is_paused(self) -> bool:
        """Whether the server has stopped reading."""
        return self._is_paused

    def waiting_bytes(self) -> int:
        """Return how much waits to be written."""
        return self._transport.get_write_buffer_size()

    def cut(self) -> None:
        """Close it now, for being slow."""
        self._close_for(logging.WARNING, "it reads too slowly")

    def cut_for_memory(self) -> None:
        """Close it now: all clients together hold too much."""
        most = self._room.rules.max_memory_bytes
        self._close_for(logging.WARNING, f"all clients together hold more than {most} bytes")

    def cut_for_time(self) -> None:
        """Close it now: its frame takes too long."""
        limit_s = self._room.rules.frame_s
        self._close_for(logging.WARNING, f"a frame was not complete within {limit_s:g} s")

    def close(self) -> None:
        """Write what waits for the client, then close."""
        self._leave()
        self._stop_timer()
        self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        self._leave()
        self._stop_timer()
        self._transport.abort()

    # ── what it does ─────────────────────────────────────────────────────────

    def _introduce(self, role: Role) -> None:
        self._stop_timer()
        room = self._room
        match role:
            case Role.PRODUCER:
                room.producers += 1
            case Role.CONSUMER:
                room.consumers += 1
            case Role.PROBE:
                room.counters.probes += 1
                self.write(OK)
                self.close()

    def _note_frame(self) -> None:
        if self._is_over:
            return
        connection = self._connection
        self._is_unfinished = connection.unfinished > 0
        self._room.note_frame(self, connection.unfinished, is_new=connection.is_new_frame)

    def _obey(self, requests: Sequence[Request]) -> None:
        exchange = self._room.exchange
        for kind, name in requests:
            if kind == SUBSCRIBE:
                exchange.subscribe(self, name)
            else:
                exchange.unsubscribe(self, name)
        self._room.limit_held_bytes()

    def _too_late(self) -> None:
        self._room.counters.handshake_timeouts += 1
        self._close_for(logging.INFO, "it did not say in time what it is")

    def _close_for(self, level: int, why: object) -> None:
        self._room.complain(level, self._transport.get_extra_info("peername"), why)
        self.abort()

    def _leave(self) -> None:
        """Have no part in anything any more, even while the connection is still open."""
        self._is_over = True
        self._room.unfinished.forget(self)
        self._room.exchange.leave(self)
        self._room.flow.forget(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
