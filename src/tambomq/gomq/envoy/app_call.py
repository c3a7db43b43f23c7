"""One gRPC call as ASGI events: reads the request, writes the reply, and can be ended from outside.

ASGI servers differ after the request has been read: for some, `receive` waits until the client
disconnects; Envoy's returns an empty event each time. So `poll_disconnect` calls it now and then,
one call at a time, and never cancels it, which Envoy's does not survive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from tambomq.gomq.envoy import grpc_framing
from tambomq.gomq.server.status import Code

Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

_HEADERS: Final = (
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", grpc_framing.ENCODINGS.encode()),
)
# Sent with nearly every reply, and never modified.
_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": list(_HEADERS),
    "trailers": True,
}
_OK_TRAILERS: Final = {
    "type": "http.response.trailers",
    "headers": [(b"grpc-status", b"0")],
    "more_trailers": False,
}


class ClientDisconnected(Exception):
    """The client has disconnected or cancelled the call."""


class AsgiCall:
    """A call in progress. It is created by the task that answers it."""

    __slots__ = (
        "_disconnect_poll",
        "_is_final",
        "_is_read",
        "_is_started",
        "_max_bytes",
        "_receive",
        "_send",
        "_task",
        "_timer",
        "end_status",
        "is_long_lived",
    )

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._receive, self._send, self._max_bytes = receive, send, max_bytes
        self._is_read = self._is_started = self._is_final = False
        self._timer: asyncio.TimerHandle | None = None
        self._disconnect_poll: asyncio.Future[Event] | None = None
        self.is_long_lived = False
        """Whether it is a stream that goes on until either side ends it."""
        self.end_status: tuple[Code, str] | None = None
        """The status that `end` gave it."""

    def end(self, code: Code, text: str) -> None:
        """Cancel it with a status, unless its reply is being sent or it was ended before."""
        if not self._is_final and self.end_status is None:
            self.end_status = code, text
            self._task.cancel()

    def end_in(self, seconds: float) -> None:
        """End it after this many seconds: its deadline."""
        loop = asyncio.get_running_loop()
        text = "the deadline has passed"
        self._timer = loop.call_later(seconds, self.end, Code.DEADLINE_EXCEEDED, text)

    def was_ended(self) -> bool:
        """Return whether `end` has cancelled the task; if so, undo the cancellation."""
        self._is_final = True
        if self.end_status is not None:
            self._task.uncancel()
        return self.end_status is not None

    def poll_disconnect(self) -> None:
        """End the call if the client has disconnected."""
        if self._is_read and self._disconnect_poll is None and not self._is_final:
            self._disconnect_poll = asyncio.ensure_future(self._receive())
            self._disconnect_poll.add_done_callback(self._on_poll)

    def close(self) -> None:
        """Cancel the deadline; the task ends."""
        self._is_final = True
        if self._timer:
            self._timer.cancel()

    async def request(self, encoding: str) -> bytes:
        """Return the only message of a request. Raises `BrokerRefused`, `ClientDisconnected`."""
        event = await self._next()
        body: bytes | bytearray = event.get("body", b"")
        if not self._is_read:
            body = bytearray(body)
            while not self._is_read:
                grpc_framing.check(body, max_bytes=self._max_bytes)
                body += (await self._next()).get("body", b"")
        return grpc_framing.unframe(body, max_bytes=self._max_bytes, encoding=encoding)

    async def requests(self, encoding: str) -> AsyncIterator[bytes]:
        """Yield the messages of a request. Raises `BrokerRefused`, `ClientDisconnected`."""
        body = bytearray()
        while not self._is_read:
            body += (await self._next()).get("body", b"")
            for message in grpc_framing.take(body, max_bytes=self._max_bytes):
                yield grpc_framing.unframe(message, max_bytes=self._max_bytes, encoding=encoding)
        if body:
            grpc_framing.unframe(body, max_bytes=self._max_bytes)

    async def answer(self, message: bytes, metadata: Mapping[str, str]) -> None:
        """Send the whole reply: one message, and the status OK."""
        self._is_final = True
        try:
            await self._send(_start(metadata) if metadata else _START)
            self._is_started = True
            await self._send(_body(message, more=False))
            await self._send(_OK_TRAILERS)
        except OSError:
            raise ClientDisconnected from None

    async def write(self, message: bytes, metadata: Mapping[str, str]) -> None:
        """Send one message of a stream; *metadata* is sent with the first."""
        try:
            if not self._is_started:
                self._is_started = True
                await self._send(_start(metadata))
            await self._send(_body(message, more=True))
        except OSError:
            raise ClientDisconnected from None

    async def finish(self, code: int, text: str, metadata: Iterable[tuple[str, str]] = ()) -> None:
        """Send the status that ends it, with *metadata*, unless the client has disconnected."""
        self._is_final = True
        status = [(b"grpc-status", b"%d" % code)]
        if text:
            status.append((b"grpc-message", grpc_framing.escaped(text)))
        status += [(name.encode(), word.encode()) for name, word in metadata]
        with suppress(OSError):
            if not self._is_started:
                headers = [*_HEADERS, *status]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send({"type": "http.response.body"})
                return
            await self._send({"type": "http.response.body"})
            await self._send({**_OK_TRAILERS, "headers": status})

    async def _next(self) -> Event:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnected
        self._is_read = not event.get("more_body", False)
        return event

    def _on_poll(self, poll: asyncio.Future[Event]) -> None:
        self._disconnect_poll = None
        if poll.cancelled() or self._is_final:
            return
        if poll.exception() or poll.result()["type"] == "http.disconnect":
            self.end(Code.CANCELLED, "the client has disconnected")


def _start(metadata: Mapping[str, str]) -> Event:
    more = [(name.encode(), word.encode()) for name, word in metadata.items()]
    return {**_START, "headers": [*_HEADERS, *more]}


def _body(message: bytes, *, more: bool) -> Event:
    return {"type": "http.response.body", "body": grpc_framing.frame(message), "more_body": more}
