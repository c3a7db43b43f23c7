"""Limits of HTTP connections: their time, and their number.

uvicorn has no timeout for the headers of a request. Here a connection is closed when its headers,
or the reading of the response, take too long. When there are too many connections, the one that
has been idle longest is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from tambomq.access.identities import of_ssl
from tambomq.console.http.login.certificate import IDENTITIES


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one connection, and of their number."""

    headers_s: float = 10.0
    """Between the connect, or the last response, and the end of a request's headers."""
    answer_s: float = 30.0
    """Between the end of the headers and the end of the response; in a stream, between the moment
    when the reader is behind and the moment when it has caught up."""
    streams: frozenset[str] = frozenset()
    """Paths whose responses go on without end."""
    max_connections: int = 1000


LIMITS: Final = HttpLimits()


class LimitedHttp(H11Protocol):
    """One connection. All connections of a server share *limits* and *waiting*."""

    limits: HttpLimits
    waiting: dict[LimitedHttp, None]
    """Idle connections, the longest idle first."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (what a TCP server makes)
        """Wait for a request; with too many connections, close the longest idle one."""
        super().connection_made(transport)
        if secured := transport.get_extra_info("ssl_object"):
            # Empty unless the certificate was demanded and verified.
            self.app_state = {**self.app_state, IDENTITIES: of_ssl(secured.getpeercert())}
        self._wait()
        if len(self.connections) > self.limits.max_connections:
            next(iter(self.waiting)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Answer a request whose headers are complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._stop_waiting()
            if not self._is_stream:
                self._timer = self.loop.call_later(self.limits.answer_s, self.drop)

    def pause_writing(self) -> None:
        """Give the reader of a stream, who is behind, some time to catch up."""
        super().pause_writing()
        if self._is_stream and self._timer is None:
            self._timer = self.loop.call_later(self.limits.answer_s, self.drop)

    def resume_writing(self) -> None:
        """Let a stream go on."""
        super().resume_writing()
        if self._is_stream and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        # uvicorn may have begun the next request already, if that was pipelined with this one.
        if self.cycle.response_complete and not self.transport.is_closing():
            self._wait()

    def drop(self) -> None:
        """Close the connection now."""
        self._stop_waiting()
        # `connection_lost` runs only later: stop counting this connection now.
        self.connections.discard(self)
        self.transport.abort()

    @property
    def _is_stream(self) -> bool:
        cycle = self.cycle
        return cycle is not None and cycle.scope["path"] in self.limits.streams

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting[self] = None
        self._timer = self.loop.call_later(self.limits.headers_s, self.drop)

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited(limits: HttpLimits) -> type[LimitedHttp]:
    """Return uvicorn's protocol with *limits*, for the connections of one server."""
    return type("LimitedHttp", (LimitedHttp,), {"limits": limits, "waiting": {}})
