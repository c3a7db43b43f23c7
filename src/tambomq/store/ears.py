"""What is published, heard by any number of tasks over one connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import hiredis

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.lane import Lane
from tambomq.store.server_errors import translate


class Hearing:
    """One task's ears on one channel."""

    def __init__(self, channel: bytes) -> None:
        """Begin with nothing heard."""
        self.channel = channel
        self.sound = True
        """Whether it still hears."""
        self._news = asyncio.Event()

    def rouse(self, *, sound: bool = True) -> None:
        """Let `wait` return: something was published, or may have been."""
        self.sound = sound
        self._news.set()

    async def wait(self, within_s: float) -> bool:
        """Whether something was published, or may have been, within *within_s* seconds."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Ears:
    """One connection in subscribed state, opened when first needed."""

    def __init__(self, open_lane: Callable[..., Awaitable[Lane]]) -> None:
        """Use *open_lane* to connect."""
        self._open_lane = open_lane
        self._lane: Lane | None = None
        self._lanes_opened = 0
        self._lock = asyncio.Lock()
        self._hearings: dict[bytes, set[Hearing]] = {}
        self._asked: dict[bytes, asyncio.Future[None]] = {}
        self._due: deque[bytes] = deque()
        """The channels of each SUBSCRIBE that has not been answered."""

    def hearing(self, channel: str) -> Hearing:
        """Return ears on *channel* that do not hear yet."""
        hearing = Hearing(channel.encode())
        self._hearings.setdefault(hearing.channel, set()).add(hearing)
        return hearing

    async def tune(self, hearing: Hearing) -> None:
        """Subscribe; what is published after this returns is heard.

        Raises `StoreUnavailable`, or `StoreRefused` when the channel is not for us.
        """
        name = hearing.channel
        async with self._lock:
            if self._lane is None or not self._lane.sound:
                await self._connect()
            asked = self._asked.get(name) or self._ask(name)
        # Shielded: others wait for the same answer.
        await asyncio.shield(asked)
        hearing.sound = True

    def leave(self, hearing: Hearing) -> None:
        """Unsubscribe, if these were the last ears on the channel."""
        others = self._hearings[hearing.channel]
        others.discard(hearing)
        if not others:
            del self._hearings[hearing.channel]
            asked = self._asked.pop(hearing.channel, None)
            if asked is not None and self._lane is not None and self._lane.sound:
                self._lane.send(hiredis.pack_command((b"UNSUBSCRIBE", hearing.channel)))

    def close(self) -> None:
        """Hang up."""
        if self._lane is not None:
            self._lane.close()

    async def _connect(self) -> None:
        self._lanes_opened += 1
        self._asked.clear()
        self._due.clear()
        self._lane = await self._open_lane(None, on_push=partial(self._pushed, self._lanes_opened))

    def _ask(self, name: bytes) -> asyncio.Future[None]:
        asked = self._asked[name] = asyncio.get_running_loop().create_future()
        # An answer that nobody waits for any more is no mistake.
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._due.append(name)
        if self._lane is not None:
            self._lane.send(hiredis.pack_command((b"SUBSCRIBE", name)))
        return asked

    def _pushed(self, lane: int, push: Any) -> None:
        if lane != self._lanes_opened:
            return
        if push is None:
            self._deafened()
        elif isinstance(push, hiredis.ReplyError):
            self._answered(translate(push))
        elif push[0] == b"subscribe":
            self._answered(None)
        elif push[0] == b"message":
            for hearing in self._hearings.get(push[1], ()):
                hearing.rouse()

    def _answered(self, refusal: StoreError | None) -> None:
        """Pass on the answer to the oldest SUBSCRIBE: they come in order."""
        name = self._due.popleft()
        # While more are due, this one answers what has been taken back since.
        if name not in self._asked or name in self._due:
            return
        if refusal is None:
            self._asked[name].set_result(None)
        else:
            self._asked.pop(name).set_exception(refusal)

    def _deafened(self) -> None:
        """Let nobody go on waiting for news of a connection that has ended."""
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(StoreUnavailable("lost the server while subscribing"))
        for hearings in self._hearings.values():
            for hearing in hearings:
                hearing.rouse(sound=False)
