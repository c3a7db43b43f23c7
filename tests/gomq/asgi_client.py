"""A client of the ASGI application, and a service behind it: no server, no socket, only events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from google.protobuf.message import Message

from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.envoy import grpc_framing
from tambomq.gomq.envoy.app import GomqApp
from tambomq.gomq.server.auth import Authenticator, Caller
from tambomq.gomq.server.service import Service

Event = MutableMapping[str, Any]

MAX = 1 << 16
"""Bytes of a message that the application takes."""


class FakeService:
    """A fake `Service` that records its requests, and fails or hangs on demand."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, Caller]] = []
        self.error: Exception | None = None
        self.hanging = False
        self.ended = 0
        """Calls that were cancelled, and watchers that were closed."""

    async def _answer(self, request: Any, caller: Caller) -> pb.Result:
        self.requests.append((request, caller))
        await self._ping()
        return pb.Result(code=0)

    publish = publish_many = subscribe = unsubscribe = _answer

    async def observe(self, request: Any, caller: Caller) -> pb.RecordSet:
        await self._answer(request, caller)
        caller.reply["x-gomq-batch"] = "b1"
        return pb.RecordSet(records=[pb.Record(key="k")])

    async def watch(self, request: Any, caller: Caller) -> AsyncIterator[pb.RecordSet]:
        try:
            for number in range(3):
                yield pb.RecordSet(records=[pb.Record(key=str(number))])
            await self._answer(request, caller)
        finally:
            self.ended += 1

    async def ping(self) -> None:
        await self._ping()

    async def _ping(self) -> None:
        if self.hanging:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        if self.error:
            raise self.error


def made(service: FakeService, token: str | None = None) -> GomqApp:
    return GomqApp(cast("Service", service), Authenticator(token), max_message_bytes=MAX)


@dataclass
class Exchange:
    """One call: what is sent to the application, and what it has said so far."""

    app: GomqApp
    path: str
    words: dict[str, str] = field(default_factory=dict)
    client: tuple[str, int] = ("127.0.0.1", 5467)
    method: str = "POST"
    http_version: str = "2"
    chatty: bool = False
    """Whether the server says "nothing more" again and again, as Envoy's does."""
    asked: int = 0
    """How often the application asked for more events."""
    events: list[Event] = field(default_factory=list)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, chunks: Iterable[bytes], *, ends: bool = True) -> asyncio.Task[None]:
        """Call the application; without *ends* the request never does."""
        self._chunks = [(chunk, True) for chunk in chunks]
        if ends:
            last = self._chunks.pop()[0] if self._chunks else b""
            self._chunks.append((last, False))
        words = {"content-type": "application/grpc", "te": "trailers", **self.words}
        scope = {
            "type": "http",
            "method": self.method,
            "http_version": self.http_version,
            "path": self.path,
            "client": self.client,
            "headers": [(name.encode(), word.encode()) for name, word in words.items()],
        }
        return asyncio.create_task(self._run(scope))

    async def _run(self, scope: dict[str, Any]) -> None:
        await self.app(scope, self._receive, self._send)

    async def _receive(self) -> Event:
        self.asked += 1
        if self.disconnected.is_set():
            return {"type": "http.disconnect"}
        if self._chunks:
            body, more = self._chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": more}
        if self.chatty:
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        if self.disconnected.is_set():
            raise ConnectionResetError
        self.events.append(event)

    @property
    def headers(self) -> dict[str, str]:
        """What the reply begins with."""
        return {name.decode(): word.decode() for name, word in self.events[0]["headers"]}

    @property
    def status(self) -> tuple[int, str]:
        """The status and its text; the reply must be complete."""
        end = self.events[-1]
        if end["type"] == "http.response.body":
            assert self.events[0].get("trailers", False) is False
            assert not end.get("more_body", False)
            end = self.events[0]
        words = {name.decode(): word.decode() for name, word in end["headers"]}
        return int(words["grpc-status"]), unquote(words.get("grpc-message", ""))

    @property
    def messages(self) -> list[bytes]:
        """The messages of the reply."""
        bodies = bytearray(b"".join(e.get("body", b"") for e in self.events[1:]))
        found = [
            grpc_framing.unframe(each, max_bytes=1 << 30)
            for each in grpc_framing.take(bodies, max_bytes=1 << 30)
        ]
        assert not bodies
        return found


async def asked(app: GomqApp, path: str, request: Message | bytes, **words: str) -> Exchange:
    """Return a call that was made and answered; ``x_gomq_peer`` becomes ``x-gomq-peer``."""
    body = (
        request if isinstance(request, bytes) else grpc_framing.frame(request.SerializeToString())
    )
    exchange = Exchange(app, path, {name.replace("_", "-"): word for name, word in words.items()})
    await exchange.start([body])
    return exchange
