"""What all connections of one server share."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable

import msgspec

from tambomq.kqueue import budget
from tambomq.kqueue.exchange import Exchange
from tambomq.kqueue.flow import End, Flow, Runs, Slow
from tambomq.kqueue.frames import LIMITS, Limits
from tambomq.kqueue.model import Counters, Stats

_log = logging.getLogger(__name__)

# What one read takes at most. The calls for each read weigh little against so many bytes.
_READ_BYTES = 256 * 1024
_COMPLAIN_EVERY_S = 1.0
# What waits for clients is looked at whenever this part of the budget has been written.
_LOOKS = 16


class Rules(msgspec.Struct, frozen=True):
    """What a server allows its clients."""

    limits: Limits = LIMITS
    slow: Slow = "disconnect"
    max_buffer_bytes: int = 8 * 1024 * 1024
    max_connections: int = 10_000
    handshake_s: float = 10.0
    ok_replies: bool = False
    max_memory_bytes: int = 256 * 1024 * 1024
    frame_s: float = 30.0


class Room:
    """The peers of a server, their subscriptions, and the buffer they all read into.

    One buffer is enough: what has been read is understood before anybody reads again. So an
    idle connection has none.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules, self.counters = rules, Counters()
        self.exchange: Exchange[End] = Exchange()
        self.flow = Flow(rules.slow, self.counters)
        self.flow.look = self._limit_memory
        self.flow.look_every_bytes = rules.max_memory_bytes // _LOOKS
        self.unfinished: budget.Unfinished[End] = budget.Unfinished()
        self.view = memoryview(bytearray(_READ_BYTES))
        self.open: set[End] = set()
        """Every connection that is not lost yet, refused ones too."""
        self.connections = self.producers = self.consumers = 0
        self.is_closing = False
        """Whether nobody is let in any more."""
        self.note: Callable[[bytes, Runs], None] | None = None
        """Who is told of all messages, after they have been delivered."""
        self._frame_timer: asyncio.TimerHandle | None = None
        self._waiting_bytes = 0
        """What waited for all clients when it was looked at last."""
        self._empty: asyncio.Future[None] | None = None
        self._complained_at, self._kept_back = -_COMPLAIN_EVERY_S, 0

    @property
    def stats(self) -> Stats:
        """What there is now, and has been."""
        return Stats(
            **msgspec.structs.asdict(self.counters),
            connections=self.connections,
            producers=self.producers,
            consumers=self.consumers,
            subscriptions=self.exchange.count,
        )

    def note_frame(self, peer: End, size: int, *, is_new: bool) -> None:
        """Count *size* bytes of an unfinished frame, and limit their number and their time."""
        loop = asyncio.get_running_loop()
        self.unfinished.update(peer, size, loop.time(), is_new=is_new)
        if self._frame_timer is None and size:
            self._frame_timer = loop.call_later(self.rules.frame_s, self._limit_time)
        self.limit_held_bytes()

    def limit_held_bytes(self) -> None:
        """Disconnect clients if all together hold more than they may, as far as is known."""
        held = self.unfinished.total + self.exchange.held_bytes + self._waiting_bytes
        if held > self.rules.max_memory_bytes:
            self._limit_memory()

    def _limit_memory(self) -> None:
        """See how much is held now, and disconnect who holds it if that is too much."""
        waiting = {peer: size for peer in self.open if (size := peer.waiting_bytes())}
        totals = [self.unfinished.total, self.exchange.held_bytes, sum(waiting.values())]
        if sum(totals) > self.rules.max_memory_bytes:
            groups = {peer: self._sharing(peer) for peer in waiting}
            totals[2] = budget.shared_total(waiting, groups)
            victims = [
                self.unfinished.victims(),
                budget.largest(self.exchange.held_by_peer()),
                budget.largest_of_shared(waiting, groups),
            ]
            for peer in budget.choose(totals, victims, self.rules.max_memory_bytes):
                totals[2] -= waiting.get(peer, 0)
                self.counters.over_budget += 1
                peer.cut_for_memory()
        self._waiting_bytes = max(totals[2], 0)

    def _sharing(self, peer: End) -> object:
        """Return what is equal for peers whose waiting messages are the same memory."""
        return self.exchange.interest(peer) if _shares_buffers() else peer

    def _limit_time(self) -> None:
        """Disconnect those whose frame has taken too long, and look again when the next may."""
        loop, limit_s = asyncio.get_running_loop(), self.rules.frame_s
        now = loop.time()
        for peer in self.unfinished.began_by(now - limit_s):
            if peer.is_paused():
                self.unfinished.restart(peer, now)
                continue
            self.counters.frame_timeouts += 1
            peer.cut_for_time()
        oldest = self.unfinished.oldest
        at = None if oldest is None else max(oldest + limit_s, now)
        self._frame_timer = None if at is None else loop.call_at(at, self._limit_time)

    def stop_timer(self) -> None:
        """Limit no frame's time any more: nobody is connected."""
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def left(self, peer: End) -> None:
        """Forget a connection that is lost."""
        self.open.discard(peer)
        if self._empty and not self.open and not self._empty.done():
            self._empty.set_result(None)

    async def empty(self) -> None:
        """Return when nobody is there."""
        if self.open:
            self._empty = asyncio.get_running_loop().create_future()
            await self._empty

    def complain(self, level: int, address: tuple[str, int] | None, why: object) -> None:
        """Log why a connection was closed; a flood of them is one line a second."""
        now = time.monotonic()
        if now - self._complained_at < _COMPLAIN_EVERY_S:
            self._kept_back += 1
            return
        more = f" (and {self._kept_back} more before it)" if self._kept_back else ""
        client = "{}:{}".format(*address[:2]) if address else "a client"
        _log.log(level, "closed %s: %s%s", client, why, more)
        self._complained_at, self._kept_back = now, 0


def _shares_buffers() -> bool:
    """Return whether a message that waits for several clients is kept once.

    asyncio's transports copied it for each until Python 3.12; uvloop's do not.
    """
    if sys.version_info >= (3, 12):
        return True
    return not isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop)
