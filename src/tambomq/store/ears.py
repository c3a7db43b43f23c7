"""What is published, heard by any number of tasks over one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis

from tambomq.errors import StoreUnavailable
from tambomq.store.lane import Lane


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
        self._lock = asyncio.Lock()
        self._hearings: dict[bytes, set[Hearing]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}

    def hearing(self, channel: str) -> Hearing:
        """Return ears on *channel* that do not hear yet."""
        hearing = Hearing(channel.encode())
        self._hearings.setdefault(hearing.channel, set()).add(hearing)
        return hearing

    async def tune(self, hearing: Hearing) -> None:
        """Subscribe; what is published after this returns is heard."""
        name = hearing.channel
        async with self._lock:
            lane = self._lane
            if lane is None or not lane.sound or lane.loop is not asyncio.get_running_loop():
                self._confirmed.clear()
                lane = self._lane = await self._open_lane(None, on_push=self._pushed)
            confirmed = self._confirmed.get(name)
            if confirmed is None:
                confirmed = self._confirmed[name] = asyncio.Event()
                lane.send(hiredis.pack_command((b"SUBSCRIBE", name)))
        await confirmed.wait()
        if not lane.sound:
            raise StoreUnavailable("lost the server while subscribing")
        hearing.sound = True

    def leave(self, hearing: Hearing) -> None:
        """Unsubscribe, if these were the last ears on the channel."""
        others = self._hearings[hearing.channel]
        others.discard(hearing)
        if not others:
            del self._hearings[hearing.channel]
            known = self._confirmed.pop(hearing.channel, None)
            if known is not None and self._lane is not None and self._lane.sound:
                self._lane.send(hiredis.pack_command((b"UNSUBSCRIBE", hearing.channel)))

    def close(self) -> None:
        """Hang up."""
        if self._lane is not None:
            self._lane.close()

    def _pushed(self, push: Any) -> None:
        if not isinstance(push, list):
            self._deafened()
        elif push[0] == b"subscribe" and push[1] in self._confirmed:
            self._confirmed[push[1]].set()
        elif push[0] == b"message":
            for hearing in self._hearings.get(push[1], ()):
                hearing.rouse()

    def _deafened(self) -> None:
        """Let nobody go on waiting for news of a connection that has ended."""
        for confirmed in self._confirmed.values():
            confirmed.set()
        for hearings in self._hearings.values():
            for hearing in hearings:
                hearing.rouse(sound=False)
