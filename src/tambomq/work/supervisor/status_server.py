"""Serves three pages over HTTP, for probes and Prometheus: a request, a reply, and the end.

Small enough to be ours: a web framework would be the largest part of the command. It reads the
first line of a request and skips the rest; a client that is slow, talkative or one of too many is
cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tambomq.errors import SettingsError
from tambomq.text import format_address

MAX_REQUEST_BYTES: Final = 16_384
MAX_CONNECTIONS: Final = 100
TIMEOUT_S: Final = 10.0

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"
_WORDS: Final = 3  # method, target, version


class StatusReply(msgspec.Struct, frozen=True):
    """The reply to a request."""

    status: int
    body: str
    content_type: str = _TEXT


Page = Callable[[], StatusReply]


class StatusServer:
    """Answers GET and HEAD for *pages*, by their path."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self._host, self._port, self._pages = host, port, pages
        self._server: asyncio.Server | None = None
        self._open = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{format_address(self._host, self._port)}"

    async def start(self) -> None:
        """Listen. Raises `SettingsError` if the port cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            why = error.strerror or error
            raise SettingsError(
                f"--http-port {self._port}: cannot listen on "
                f"{format_address(self._host, self._port)}: {why}: choose another port"
            ) from error

    def close(self) -> None:
        """Accept no more requests."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(TIMEOUT_S):
                    writer.write(await self._reply(reader))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        request = await reader.readuntil(b"\r\n\r\n")
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != _WORDS or not words[2].startswith("HTTP/1."):
            return _encoded(StatusReply(400, "not an HTTP request\n"))
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _encoded(StatusReply(405, "GET or HEAD\n"), extra="Allow: GET, HEAD\r\n")
        page = self._pages.get(target.partition("?")[0])
        reply = StatusReply(404, self._index()) if page is None else page()
        return _encoded(reply, with_body=method == "GET")

    def _index(self) -> str:
        return "".join(f"{path}\n" for path in self._pages)


def _encoded(reply: StatusReply, *, with_body: bool = True, extra: str = "") -> bytes:
    body = reply.body.encode()
    head = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\n"
        f"Content-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
