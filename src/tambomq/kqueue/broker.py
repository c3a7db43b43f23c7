"""The state that all connections of one server share: peers, subscriptions, limits, counters."""

from __future__ import annotations

import asyncio
import heapq
import logging
import sys
import time
from collections.abc import Callable

import msgspec

from tambomq.kqueue import budget
from tambomq.kqueue.delivery import Fanout, PeerConnection, Runs, SlowConsumerPolicy
from tambomq.kqueue.exchange import Exchange
from tambomq.kqueue.frames import LIMITS, Limits
from tambomq.kqueue.model import (
    ConnectionInfo,
    Counters,
    QueueTraffic,
    Stats,
    TrafficCounters,
)

_log = logging.getLogger(__name__)

# Size of one read. Large, so that the cost of a call is small per byte.
_READ_BYTES = 256 * 1024
_LOG_EVERY_S = 1.0
# A queue without messages and subscribers is shown for at least as long.
_FORGET_EVERY_S = 600.0
# Write buffers are measured each time this fraction of the budget has been written.
_CHECKS_PER_BUDGET = 16


class BrokerOptions(msgspec.Struct, frozen=True):
    """The limits and policies of a server; see `KqueueServer`."""

    limits: Limits = LIMITS
    slow: SlowConsumerPolicy = "disconnect"
    max_buffer_bytes: int = 8 * 1024 * 1024
    max_connections: int = 10_000
    handshake_s: float = 10.0
    ok_replies: bool = False
    max_memory_bytes: int = 256 * 1024 * 1024
    frame_s: float = 30.0


class BrokerState:
    """The connected peers of a server, their subscriptions, and the shared read buffer.

    One buffer is enough, since each read is parsed before the next one: an idle connection
    has no buffer.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self.options, self.counters = options, Counters()
        self.exchange: Exchange[PeerConnection] = Exchange()
        self.traffic = TrafficCounters()
        self.fanout = Fanout(options.slow, self.counters)
        self.fanout.check_memory = self._disconnect_over_budget
        self.fanout.check_every_bytes = options.max_memory_bytes // _CHECKS_PER_BUDGET
        self.partial_frames: budget.PartialFrames[PeerConnection] = budget.PartialFrames()
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self.peers: set[PeerConnection] = set()
        """Every open connection, including refused ones that are being closed."""
        self.connections = self.producers = self.consumers = 0
        self.is_closing = False
        """Whether new connections are refused."""
        self.on_published: Callable[[bytes, Runs], None] | None = None
        """Called with the data and runs of published messages, after their delivery."""
        self._frame_timer: asyncio.TimerHandle | None = None
        self._buffered_bytes = 0
        """Size of all write buffers when they were last measured."""
        self._all_disconnected: asyncio.Future[None] | None = None
        self._logged_at, self._suppressed = -_LOG_EVERY_S, 0
        self._forgot_at = time.monotonic()

    @property
    def stats(self) -> Stats:
        """Current gauges and counters."""
        return Stats(
            **msgspec.structs.asdict(self.counters),
            connections=self.connections,
            producers=self.producers,
            consumers=self.consumers,
            subscriptions=self.exchange.count,
            buffered_bytes=sum(peer.buffered_bytes() for peer in self.peers),
        )

    def list_queues(self) -> list[QueueTraffic]:
        """Return the queues with messages or subscribers, by name; a bounded number."""
        now = time.monotonic()
        if now - self._forgot_at >= _FORGET_EVERY_S:
            self._forgot_at = now
            self.traffic.forget_idle()
        return self.traffic.list_queues(self.exchange.subscribers, self.exchange.wildcards)

    def list_connections(self, limit: int) -> list[ConnectionInfo]:
        """Return up to *limit* connections, those with the fullest write buffers first."""
        fullest = heapq.nlargest(limit, self.peers, key=lambda peer: peer.buffered_bytes())
        return [found for peer in fullest if (found := peer.describe()) is not None]

    def track_partial_frame(self, peer: PeerConnection, size: int, *, is_new: bool) -> None:
        """Record *size* bytes of an incomplete frame, and enforce the limits of memory and time."""
        loop = asyncio.get_running_loop()
        self.partial_frames.update(peer, size, loop.time(), is_new=is_new)
        if self._frame_timer is None and size:
            self._frame_timer = loop.call_later(self.options.frame_s, self._disconnect_stalled)
        self.enforce_memory_limit()

    def enforce_memory_limit(self) -> None:
        """Disconnect clients if all together hold too much memory, by the last measurement."""
        held = self.partial_frames.total + self.exchange.held_bytes + self._buffered_bytes
        if held > self.options.max_memory_bytes:
            self._disconnect_over_budget()

    def _disconnect_over_budget(self) -> None:
        """Measure the memory held now, and disconnect clients if it exceeds the budget."""
        buffered = {peer: size for peer in self.peers if (size := peer.buffered_bytes())}
        totals = [self.partial_frames.total, self.exchange.held_bytes, sum(buffered.values())]
        if sum(totals) > self.options.max_memory_bytes:
            groups = {peer: self._buffer_group(peer) for peer in buffered}
            totals[2] = budget.shared_total(buffered, groups)
            victims = [
                self.partial_frames.victims(),
                budget.largest(self.exchange.held_by_peer()),
                budget.largest_of_shared(buffered, groups),
            ]
            for peer in budget.choose_victims(totals, victims, self.options.max_memory_bytes):
                totals[2] -= buffered.get(peer, 0)
                self.counters.over_budget += 1
                peer.disconnect_for_memory()
        self._buffered_bytes = max(totals[2], 0)

    def _buffer_group(self, peer: PeerConnection) -> object:
        """Return a key that is equal for peers whose write buffers share memory."""
        return self.exchange.subscription_key(peer) if _shares_buffers() else peer

    def _disconnect_stalled(self) -> None:
        """Disconnect clients with a frame that takes too long, and schedule the next check."""
        loop, limit_s = asyncio.get_running_loop(), self.options.frame_s
        now = loop.time()
        for peer in self.partial_frames.started_by(now - limit_s):
            if peer.is_paused():
                self.partial_frames.restart(peer, now)
                continue
            self.counters.frame_timeouts += 1
            peer.disconnect_for_time()
        oldest = self.partial_frames.oldest
        at = None if oldest is None else max(oldest + limit_s, now)
        self._frame_timer = None if at is None else loop.call_at(at, self._disconnect_stalled)

    def stop_timer(self) -> None:
        """Cancel the check of incomplete frames."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def detach(self, peer: PeerConnection) -> None:
        """End all that *peer* takes part in; its connection may stay open for a while."""
        self.partial_frames.remove(peer)
        self.exchange.unsubscribe_all(peer)
        self.fanout.remove(peer)

    def remove(self, peer: PeerConnection) -> None:
        """Remove a closed connection."""
        self.peers.discard(peer)
        if self._all_disconnected and not self.peers and not self._all_disconnected.done():
            self._all_disconnected.set_result(None)

    async def wait_disconnected(self) -> None:
        """Wait until all connections are closed."""
        if self.peers:
            self._all_disconnected = asyncio.get_running_loop().create_future()
            await self._all_disconnected

    def log_closed(self, level: int, address: tuple[str, int] | None, why: object) -> None:
        """Log why a connection was closed, at most one line per second."""
        now = time.monotonic()
        if now - self._logged_at < _LOG_EVERY_S:
            self._suppressed += 1
            return
        more = f" (and {self._suppressed} more before it)" if self._suppressed else ""
        client = "{}:{}".format(*address[:2]) if address else "a client"
        _log.log(level, "closed %s: %s%s", client, why, more)
        self._logged_at, self._suppressed = now, 0


def _shares_buffers() -> bool:
    """Return whether a message in several write buffers is stored once.

    asyncio's transports copied it for each until Python 3.12; uvloop's do not.
    """
    if sys.version_info >= (3, 12):
        return True
    return not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
