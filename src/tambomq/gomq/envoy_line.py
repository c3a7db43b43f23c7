"""The parent's end of the line to the process inside Envoy: asks, and hears what is told."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

import msgspec

from tambomq.gomq.envoy_child import Ask, Tell
from tambomq.gomq.service import Stats

NOTHING: Final = Stats(0, 0, 0, 0, 0, 0)


class Line:
    """A socket on which each line is an `Ask` or a `Tell`."""

    def __init__(self) -> None:
        self.stats = NOTHING
        """What was told last."""
        self.failed: str | None = None
        """Why the child could not start."""
        self.is_up = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._asked: dict[int, asyncio.Future[Tell]] = {}
        self._count = 0

    async def hear(self, line: socket.socket) -> None:
        """Take in what is told, until the other end is closed."""
        reader, self._writer = await asyncio.open_connection(sock=line)
        try:
            with suppress(OSError):
                while told := await reader.readline():
                    self._take(msgspec.json.decode(told, type=Tell))
        finally:
            self.close()

    async def ask(self, what: str, *, within_s: float, grace_s: float = 0.0) -> Tell:
        """Return the answer. Raises `OSError`; a `TimeoutError` is one."""
        if self._writer is None:
            raise ConnectionError("nobody is there")
        self._count += 1
        ask = Ask(self._count, what, grace_s)
        answer = self._asked[ask.id] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(msgspec.json.encode(ask) + b"\n")
            return await asyncio.wait_for(answer, within_s)
        finally:
            del self._asked[ask.id]

    def close(self) -> None:
        """Hang up; a child that is still there ends itself."""
        writer, self._writer = self._writer, None
        if writer:
            writer.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("it went away"))

    def _take(self, tell: Tell) -> None:
        if tell.stats:
            self.stats = tell.stats
        if not tell.id and tell.failed:
            self.failed = tell.failed
            return
        self.is_up.set()
        answer = self._asked.get(tell.id)
        if answer and not answer.done():
            answer.set_result(tell)
