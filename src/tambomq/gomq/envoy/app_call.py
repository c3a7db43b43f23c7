"""One call as ASGI's events: reads the request, writes the reply, and can be ended from outside.

Servers differ in what they say once the request is read: some are silent until the client goes
away, Envoy's says "nothing more" as often as it is asked. So `listen` asks now and then, never
twice at a time, and never takes a question back, which Envoy's does not bear.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from tambomq.gomq import grpc_frames as frames
from tambomq.gomq.status import Code

Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

_HEADERS: Final = (
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", frames.ENCODINGS.encode()),
)
# These two are sent with nearly every reply, and nobody changes them.
_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": list(_HEADERS),
    "trailers": True,
}
_GOOD_END: Final = {
    "type": "http.response.trailers",
    "headers": [(b"grpc-status", b"0")],
    "more_trailers": False,
}


class Gone(Exception):
    """The client is not there any more."""


class Call:
    """A call under way, made by the task that answers it."""

    __slots__ = (
        "_ear",
        "_is_read",
        "_is_sealed",
        "_is_started",
        "_max_bytes",
        "_receive",
        "_send",
        "_task",
        "_timer",
        "lasts",
        "verdict",
    )

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._receive, self._send, self._max_bytes = receive, send, max_bytes
        self._is_read = self._is_started = self._is_sealed = False
        self._timer: asyncio.TimerHandle | None = None
        self._ear: asyncio.Future[Event] | None = None
        self.lasts = False
        """Whether it goes on until somebody ends it."""
        self.verdict: tuple[Code, str] | None = None
        """The status it was ended with from outside."""

    def end(self, code: Code, text: str) -> None:
        """Cancel it, unless its reply is on its way or somebody else was faster."""
        if not self._is_sealed and self.verdict is None:
            self.verdict = code, text
            self._task.cancel()

    def end_in(self, seconds: float) -> None:
        """End it when its deadline has passed."""
        loop = asyncio.get_running_loop()
        text = "the deadline has passed"
        self._timer = loop.call_later(seconds, self.end, Code.DEADLINE_EXCEEDED, text)

    def was_ended(self) -> bool:
        """Whether `end` is why the task was cancelled; it may go on then, and say so."""
        self._is_sealed = True
        if self.verdict is not None:
            self._task.uncancel()
        return self.verdict is not None

    def listen(self) -> None:
        """Look whether the client is still there, and end the call if not."""
        if self._is_read and self._ear is None and not self._is_sealed:
            self._ear = asyncio.ensure_future(self._receive())
            self._ear.add_done_callback(self._heard)

    def close(self) -> None:
        """Let go of everything; the task is at its end."""
        self._is_sealed = True
        if self._timer:
            self._timer.cancel()

    async def request(self, encoding: str) -> bytes:
        """Return the one message of a request. Raises `BrokerRefused` and `Gone`."""
        event = await self._next()
        body: bytes | bytearray = event.get("body", b"")
        if not self._is_read:
            body = bytearray(body)
            while not self._is_read:
                frames.check(body, max_bytes=self._max_bytes)
                body += (await self._next()).get("body", b"")
        return frames.unframe(body, max_bytes=self._max_bytes, encoding=encoding)

    async def requests(self, encoding: str) -> AsyncIterator[bytes]:
        """Yield the messages of a request as they come. Raises `BrokerRefused` and `Gone`."""
        body = bytearray()
        while not self._is_read:
            body += (await self._next()).get("body", b"")
            for message in frames.take(body, max_bytes=self._max_bytes):
                yield frames.unframe(message, max_bytes=self._max_bytes, encoding=encoding)
        if body:
            frames.unframe(body, max_bytes=self._max_bytes)

    async def answer(self, message: bytes, metadata: Mapping[str, str]) -> None:
        """Send the whole reply: one message, and that all is well."""
        self._is_sealed = True
        try:
            await self._send(_start(metadata) if metadata else _START)
            self._is_started = True
            await self._send(_body(message, more=False))
            await self._send(_GOOD_END)
        except OSError:
            raise Gone from None

    async def write(self, message: bytes, metadata: Mapping[str, str]) -> None:
        """Send one of many messages; *metadata* goes with the first."""
        try:
            if not self._is_started:
                self._is_started = True
                await self._send(_start(metadata))
            await self._send(_body(message, more=True))
        except OSError:
            raise Gone from None

    async def finish(self, code: int, text: str) -> None:
        """Send the status that ends it; a client that is gone will not miss it."""
        self._is_sealed = True
        status = [(b"grpc-status", b"%d" % code)]
        if text:
            status.append((b"grpc-message", frames.escaped(text)))
        with suppress(OSError):
            if not self._is_started:
                headers = [*_HEADERS, *status]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._send({"type": "http.response.body"})
                return
            await self._send({"type": "http.response.body"})
            await self._send({**_GOOD_END, "headers": status})

    async def _next(self) -> Event:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            raise Gone
        self._is_read = not event.get("more_body", False)
        return event

    def _heard(self, ear: asyncio.Future[Event]) -> None:
        self._ear = None
        if ear.cancelled() or self._is_sealed:
            return
        if ear.exception() or ear.result()["type"] == "http.disconnect":
            self.end(Code.CANCELLED, "the client has gone away")


def _start(metadata: Mapping[str, str]) -> Event:
    more = [(name.encode(), word.encode()) for name, word in metadata.items()]
    return {**_START, "headers": [*_HEADERS, *more]}


def _body(message: bytes, *, more: bool) -> Event:
    return {"type": "http.response.body", "body": frames.frame(message), "more_body": more}
