"""What all connections of one server share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from tambomq.kqueue.exchange import Exchange
from tambomq.kqueue.flow import End, Flow, Runs, Slow
from tambomq.kqueue.frames import LIMITS, Limits
from tambomq.kqueue.model import Counters, Stats

_log = logging.getLogger(__name__)

# What one read takes at most. The calls for each read weigh little against so many bytes.
_READ_BYTES = 256 * 1024
_COMPLAIN_EVERY_S = 1.0


class Rules(msgspec.Struct, frozen=True):
    """What a server allows its clients."""

    limits: Limits = LIMITS
    slow: Slow = "disconnect"
    max_buffer_bytes: int = 8 * 1024 * 1024
    max_connections: int = 10_000
    handshake_s: float = 10.0
    ok_replies: bool = False


class Room:
    """The peers of a server, their subscriptions, and the buffer they all read into.

    One buffer is enough: what has been read is understood before anybody reads again. So an
    idle connection has none.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules, self.counters = rules, Counters()
        self.exchange: Exchange[End] = Exchange()
        self.flow = Flow(rules.slow, self.counters)
        self.view = memoryview(bytearray(_READ_BYTES))
        self.open: set[End] = set()
        """Every connection that is not lost yet, refused ones too."""
        self.connections = self.producers = self.consumers = 0
        self.is_closing = False
        """Whether nobody is let in any more."""
        self.note: Callable[[bytes, Runs], None] | None = None
        """Who is told of all messages, after they have been delivered."""
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
