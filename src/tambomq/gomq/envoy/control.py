"""The parent's end of the control socket: sends requests to the child, and reads its replies."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final

import msgspec

from tambomq.access.denials import Denial
from tambomq.gomq.envoy.child import ControlReply, ControlRequest
from tambomq.gomq.model import GomqStats

NO_STATS: Final = GomqStats(0, 0, 0, 0, 0, 0)


class ControlChannel:
    """A socket whose lines are a `ControlRequest` each, in the other direction a `ControlReply`."""

    def __init__(self) -> None:
        self.stats = NO_STATS
        """As the child has reported them last."""
        self.denials: list[Denial] = []
        """The same, of calls that were denied."""
        self.failed: str | None = None
        """Why the child has failed to start."""
        self.is_up = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, asyncio.Future[ControlReply]] = {}
        self._count = 0

    async def run(self, control: socket.socket) -> None:
        """Read replies until the child closes the socket."""
        reader, self._writer = await asyncio.open_connection(sock=control)
        try:
            with suppress(OSError):
                while line := await reader.readline():
                    self._on_reply(msgspec.json.decode(line, type=ControlReply))
        finally:
            self.close()

    async def request(
        self, command: str, *, timeout_s: float, grace_s: float = 0.0
    ) -> ControlReply:
        """Send *command* and return the reply. Raises `OSError`, also `TimeoutError`."""
        if self._writer is None:
            raise ConnectionError("the child is not connected")
        self._count += 1
        request = ControlRequest(self._count, command, grace_s)
        reply = self._pending[request.id] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            return await asyncio.wait_for(reply, timeout_s)
        finally:
            del self._pending[request.id]

    def close(self) -> None:
        """Close the socket; a child that is still running ends itself."""
        writer, self._writer = self._writer, None
        if writer:
            writer.close()
        for reply in self._pending.values():
            if not reply.done():
                reply.set_exception(ConnectionError("the child has ended"))

    def _on_reply(self, reply: ControlReply) -> None:
        if reply.stats:
            self.stats, self.denials = reply.stats, reply.denials
        if not reply.id and reply.failed:
            self.failed = reply.failed
            return
        self.is_up.set()
        future = self._pending.get(reply.id)
        if future and not future.done():
            future.set_result(reply)
