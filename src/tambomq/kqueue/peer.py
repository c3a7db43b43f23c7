"""One client connection of a server: an asyncio protocol on top of the shared broker state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Literal

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.broker import BrokerState
from tambomq.kqueue.connection import Connection, Role
from tambomq.kqueue.frames import OK, SUBSCRIBE, Request
from tambomq.kqueue.model import ConnectionInfo
from tambomq.text import format_address

_NAMES_SHOWN: Final = 20
_ROLES: Final[dict[Role | None, Literal["producer", "consumer"]]] = {
    Role.PRODUCER: "producer",
    Role.CONSUMER: "consumer",
}


class Peer(asyncio.BufferedProtocol):
    """Parses what one client sends, and publishes, subscribes or disconnects accordingly."""

    __slots__ = (
        "_accepted_at",
        "_broker",
        "_connection",
        "_has_partial_frame",
        "_is_admitted",
        "_is_detached",
        "_is_paused",
        "_timer",
        "_transport",
        "full",
        "is_closing",
        "write",
    )

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        # With TLS `connection_made` is called later, after that handshake.
        self._accepted_at = asyncio.get_running_loop().time()
        self._connection = Connection(
            broker.exchange.routes, broker.options.limits, lenient=broker.options.ok_replies
        )
        self._is_admitted = self._is_detached = self._is_paused = False
        self._has_partial_frame = self.full = False
        self._timer: asyncio.TimerHandle | None = None

    # ── callbacks of the event loop ──────────────────────────────────────────

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (what a TCP server makes)
        """Admit the client, unless there are too many connections."""
        broker, options = self._broker, self._broker.options
        broker.peers.add(self)
        self._transport = transport
        # Looked up once instead of per delivery.
        self.write: Callable[[bytes | memoryview], None] = transport.write
        self.is_closing: Callable[[], bool] = transport.is_closing
        if broker.is_closing:
            self.abort()
            return
        if broker.connections >= options.max_connections:
            broker.counters.refused += 1
            self.abort()
            return
        self._is_admitted = True
        broker.connections += 1
        broker.counters.accepted += 1
        # Transports pause above `high`; a peer is full at the bound itself.
        high = options.max_buffer_bytes - 1
        transport.set_write_buffer_limits(high, high // 2 if options.slow == "block" else high)
        self._timer = asyncio.get_running_loop().call_at(
            self._accepted_at + options.handshake_s, self._on_handshake_timeout
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """Return the shared read buffer."""
        return self._broker.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the bytes read and act on them."""
        if self._is_detached:
            return
        broker = self._broker
        received = self._connection.receive(broker.read_buffer[:nbytes])
        handled, error = 0, received.error
        if received.role is not None:
            self._on_role(received.role)
            handled = 1
        if received.runs:
            broker.fanout.deliver(self, received.data, received.runs)
            if broker.on_published is not None:
                broker.on_published(received.data, received.runs)
            broker.traffic.count(received.data, received.runs)
        elif received.requests:
            try:
                self._apply_requests(received.requests)
            except RemoteProtocolError as limit_error:
                error = limit_error
        broker.counters.protocol_errors += received.junk
        if broker.options.ok_replies and not self._is_detached:
            handled += received.junk + len(received.requests) + sum(run[3] for run in received.runs)
            broker.fanout.reply(self, handled)
        if error is not None:
            broker.counters.protocol_errors += 1
            self._disconnect(logging.INFO, error)
        elif self._has_partial_frame or self._connection.partial_bytes:
            self._track_partial_frame()

    def eof_received(self) -> None:
        """Detach the client; its write buffer is still flushed, for a limited time."""
        self._detach()
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(
            self._broker.options.handshake_s, self._transport.abort
        )

    def pause_writing(self) -> None:
        """Mark the write buffer as full."""
        self.full = True

    def resume_writing(self) -> None:
        """Mark the write buffer as no longer full, and resume blocked senders."""
        self.full = False
        self._broker.fanout.unblock(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (whatever the reason)
        """Remove the client."""
        self._detach()
        self._stop_timer()
        broker = self._broker
        if self._is_admitted:
            broker.connections -= 1
            broker.producers -= self._connection.role is Role.PRODUCER
            broker.consumers -= self._connection.role is Role.CONSUMER
        broker.remove(self)

    # ── methods for the broker (`PeerConnection`) ────────────────────────────

    def pause(self) -> None:
        """Stop reading."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        self._is_paused = False
        if not self._transport.is_closing():
            now = asyncio.get_running_loop().time()
            self._broker.partial_frames.restart(self, now)
            self._transport.resume_reading()

    def is_paused(self) -> bool:
        """Whether the server has paused reading."""
        return self._is_paused

    def buffered_bytes(self) -> int:
        """Return the size of the write buffer."""
        return self._transport.get_write_buffer_size()

    def describe(self) -> ConnectionInfo | None:
        """Return what the connection is; `None` if it was not admitted, or is closing."""
        if not self._is_admitted or self._is_detached:
            return None
        names = self._broker.exchange.list_subscriptions(self, _NAMES_SHOWN)
        address = self._transport.get_extra_info("peername")
        return ConnectionInfo(
            format_address(*address[:2]) if address else "",
            _ROLES.get(self._connection.role, ""),
            [name.decode("utf-8", "backslashreplace") or "*" for name in names],
            self.buffered_bytes(),
            self._is_paused,
        )

    def disconnect_slow(self) -> None:
        """Close now: the client reads too slowly."""
        self._disconnect(logging.WARNING, "it reads too slowly: its write buffer is full")

    def disconnect_for_memory(self) -> None:
        """Close now: all clients together hold too much memory."""
        limit = self._broker.options.max_memory_bytes
        self._disconnect(logging.WARNING, f"all clients together hold more than {limit} bytes")

    def disconnect_for_time(self) -> None:
        """Close now: a frame was not complete in time."""
        limit_s = self._broker.options.frame_s
        self._disconnect(logging.WARNING, f"a frame was not complete within {limit_s:g} s")

    def close(self) -> None:
        """Write the buffered bytes, then close."""
        self._detach()
        self._stop_timer()
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._detach()
        self._stop_timer()
        self._transport.abort()

    # ── internals ────────────────────────────────────────────────────────────

    def _on_role(self, role: Role) -> None:
        self._stop_timer()
        broker = self._broker
        match role:
            case Role.PRODUCER:
                broker.producers += 1
            case Role.CONSUMER:
                broker.consumers += 1
            case Role.PROBE:
                broker.counters.probes += 1
                self.write(OK)
                self.close()

    def _track_partial_frame(self) -> None:
        if self._is_detached:
            return
        connection = self._connection
        self._has_partial_frame = connection.partial_bytes > 0
        self._broker.track_partial_frame(
            self, connection.partial_bytes, is_new=connection.is_new_frame
        )

    def _apply_requests(self, requests: Sequence[Request]) -> None:
        exchange = self._broker.exchange
        for kind, name in requests:
            if kind == SUBSCRIBE:
                exchange.subscribe(self, name)
            else:
                exchange.unsubscribe(self, name)
        self._broker.enforce_memory_limit()

    def _on_handshake_timeout(self) -> None:
        self._broker.counters.handshake_timeouts += 1
        self._disconnect(logging.INFO, "it did not send its role in time")

    def _disconnect(self, level: int, reason: object) -> None:
        self._broker.log_closed(level, self._transport.get_extra_info("peername"), reason)
        self.abort()

    def _detach(self) -> None:
        self._is_detached = True
        self._broker.detach(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
