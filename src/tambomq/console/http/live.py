"""Live updates as server-sent events. The overview is sampled and encoded once for all viewers.

A viewer that reads slowly gets the latest state when it is ready for it, not each one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tambomq.console.http.parts import ConsoleParts
from tambomq.console.http.problems import Problem

KEEP_ALIVE_S: Final = 15.0
"""A comment is sent when nothing else was for this long, so that proxies keep the connection."""
OPERATIONS_EVERY_S: Final = 1.0
_AGAIN_AFTER_S: Final = 2.0

_log = logging.getLogger(__name__)


class LiveFeed:
    """The latest events, and the viewers that wait for them. Works only while it has viewers."""

    def __init__(self, parts: ConsoleParts, max_viewers: int) -> None:
        self._parts, self._max_viewers = parts, max_viewers
        self._viewers = 0
        self._events: dict[str, tuple[int, bytes]] = {}
        self._version = 0
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """How many viewers there are."""
        return self._viewers

    def enter(self) -> None:
        """Count a viewer; the caller must `leave`. Raises `Problem` if there are too many."""
        if self._is_closed:
            raise Problem(503, "stopping", "This process is stopping.")
        if self._viewers >= self._max_viewers:
            raise Problem(
                503,
                "too_many_viewers",
                f"{self._viewers} pages are updated live, which is the maximum: close one.",
            )
        self._viewers += 1
        if not self._tasks:
            self._tasks = [
                asyncio.ensure_future(self._sample()),
                asyncio.ensure_future(self._poll()),
            ]

    def leave(self) -> None:
        """Forget a viewer; the last one ends the sampling."""
        self._viewers -= 1
        if not self._viewers:
            self._end_tasks()
            # The next viewer must not see old numbers first.
            self._events.clear()

    async def events(self, is_allowed: Callable[[], bool] = lambda: True) -> AsyncIterator[bytes]:
        """Yield what to send to one viewer, until the feed is closed or its session has ended."""
        yield b"retry: 2000\n\n"
        seen = 0
        while not self._is_closed and is_allowed():
            changed, version = self._changed, self._version
            for text in [text for at, text in self._events.values() if at > seen]:
                yield text
            seen = version
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await changed.wait()
            except TimeoutError:
                yield b": keep-alive\n\n"

    async def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        tasks = self._end_tasks()
        self._notify()
        await asyncio.gather(*tasks, return_exceptions=True)

    def publish(self, event: str, key: str, value: msgspec.Struct) -> None:
        """Make *value* the latest of *key*, unless it is that already."""
        text = b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value))
        if key in self._events and self._events[key][1] == text:
            return
        self._version += 1
        self._events[key] = self._version, text
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _end_tasks(self) -> list[asyncio.Task[None]]:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        return tasks

    async def _sample(self) -> None:
        while True:
            try:
                async with self._parts.source.watching() as updates:
                    async for overview in updates:
                        self.publish("overview", "overview", overview)
            except Exception:  # noqa: BLE001  (a bug in one sample must not end the updates for good)
                _log.exception("the overview could not be sampled")
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _poll(self) -> None:
        while True:
            # Without Redis there is no news of operations; the overview says so.
            with suppress(Exception):
                found = self._parts.actions.operations()
                for each in found:
                    self.publish("operation", f"operation {each.id}", each)
                kept = {"overview", *(f"operation {each.id}" for each in found)}
                self._events = {key: each for key, each in self._events.items() if key in kept}
            await asyncio.sleep(OPERATIONS_EVERY_S)


class EventStream(StreamingResponse):
    """The response of one viewer, which has entered *feed*."""

    def __init__(self, feed: LiveFeed, is_allowed: Callable[[], bool] = lambda: True) -> None:
        self._feed, self._events = feed, feed.events(is_allowed)
        super().__init__(
            self._events,
            media_type="text/event-stream",
            # nginx would keep events until its buffer is full.
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the viewer disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave()
            with suppress(RuntimeError):
                await self._events.aclose()  # type: ignore[attr-defined]  # it is a generator
