"""`TlsServer`: listens for TLS connections, with a limited number of handshakes at a time.

A server of asyncio begins one for each connection that it accepts, with buffers of a hundred
kilobytes or more, before any limit applies: clients that never end theirs would take gigabytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, Protocol, Self

MAX_HANDSHAKES: Final = 1000
"""Other connections wait for their turn, unread, for as long as a handshake may take."""
_BACKLOG: Final = 1024
# As asyncio does if there is no free descriptor.
_ACCEPT_AGAIN_S: Final = 1.0

_log = logging.getLogger(__name__)


class TlsPolicy(Protocol):
    """What a `TlsServer` asks the server that it is a part of."""

    @property
    def handshake_s(self) -> float:
        """How long a handshake may take, with the wait for its turn."""

    def make_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol of one connection."""

    def admits(self, handshakes: int) -> bool:
        """Whether there may be another connection; *handshakes* of others have not ended."""

    def on_timeout(self) -> None:
        """Note that a handshake took too long."""


class TlsServer:
    """Accepts connections to *sockets*, which listen; a part of `asyncio.Server`."""

    def __init__(
        self, sockets: Sequence[socket.socket], context: ssl.SSLContext, policy: TlsPolicy
    ) -> None:
        self.sockets = sockets
        self._context, self._policy = context, policy
        self._slots = asyncio.Semaphore(MAX_HANDSHAKES)
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    @classmethod
    async def bind(
        cls,
        address: tuple[str, int],
        context: ssl.SSLContext,
        policy: TlsPolicy,
    ) -> Self:
        """Bind all addresses of a host; `start_serving` accepts. Raises `OSError`."""
        found = await asyncio.get_running_loop().getaddrinfo(
            address[0] or None, address[1], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, bound in dict.fromkeys(found):
                sockets.append(made := socket.socket(family, socket.SOCK_STREAM))
                _bind(made, bound)
        except BaseException:
            for each in sockets:
                each.close()
            raise
        return cls(sockets, context, policy)

    async def start_serving(self) -> None:
        """Accept connections from now on."""
        for each in self.sockets:
            each.settimeout(0)
            each.listen(_BACKLOG)
        self._accepting = [asyncio.ensure_future(self._accept(each)) for each in self.sockets]

    def close(self) -> None:
        """Stop listening, and abort handshakes."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for each in self.sockets:
            each.close()

    async def wait_closed(self) -> None:
        """Wait until all that `close` has cancelled has ended."""
        tasks = (*self._accepting, *self._handshakes)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            if not self._policy.admits(len(self._handshakes)):
                accepted.close()
                continue
            task = asyncio.ensure_future(self._shake_hands(accepted))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        policy, limit_s, has_begun = self._policy, self._policy.handshake_s, False
        try:
            async with asyncio.timeout(limit_s), self._slots:
                has_begun = True
                await asyncio.get_running_loop().connect_accepted_socket(
                    policy.make_protocol,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=limit_s,
                )
        except TimeoutError:
            policy.on_timeout()
        except OSError as error:
            _log.debug("a TLS handshake failed: %s", error)
        finally:
            if not has_begun:
                accepted.close()


def _bind(made: socket.socket, address: tuple[Any, ...]) -> None:
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind(address)
