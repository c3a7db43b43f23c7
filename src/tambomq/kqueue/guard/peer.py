"""`GuardedPeer`: a connection whose user needs rights to the queues of its frames.

KqueueMsgQ's wire has no credentials, so the user is that of the client certificate, fixed at the
handshake. A frame for a queue without the right closes the connection; nothing of the read that has
it is forwarded. Servers without users make plain peers, which pay nothing for this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from tambomq.access.directory import UserDirectory, UserSession
from tambomq.access.identities import of_ssl
from tambomq.access.model import Right
from tambomq.errors import AccessDenied, AccessError, NotAuthenticated
from tambomq.kqueue.broker import BrokerState
from tambomq.kqueue.connection import Connection, ReceivedFrames
from tambomq.kqueue.delivery import PeerConnection
from tambomq.kqueue.exchange import MAX_SUBSCRIPTIONS
from tambomq.kqueue.frames import SUBSCRIBE, names_in
from tambomq.kqueue.peer import Peer
from tambomq.text import format_address

PROTOCOL: Final = "kqueue"
_CACHED_NAMES: Final = 4096
_CACHED_NAME_BYTES: Final = 256

Targets = frozenset[PeerConnection]


class GuardedConnection(Connection[Targets]):
    """A parser that lets through what the user of *session* has the right to, or nothing."""

    __slots__ = ("_allowed", "_changes", "_directory", "_generation", "_session", "denial")

    def __init__(self, broker: BrokerState, directory: UserDirectory) -> None:
        options = broker.options
        super().__init__(broker.exchange.routes, options.limits, lenient=options.ok_replies)
        self._directory = directory
        self._session: UserSession | None = None
        self._allowed: set[bytes] = set()
        self._generation, self._changes = directory.generation, 0
        self.denial: AccessError | None = None
        """Why the connection must be closed."""

    def log_in(self, session: UserSession) -> None:
        """Let through what *session* has the right to."""
        self._session = session

    def receive(self, piece: bytes | memoryview) -> ReceivedFrames[Targets]:
        """Parse *piece*; return nothing of it if a frame is denied."""
        received = super().receive(piece)
        try:
            for name in _published(received):
                self._require("send", name)
            for kind, name in received.requests:
                if kind == SUBSCRIBE:
                    self._require("receive", name)
        except AccessError as error:
            self.denial = error
            denied = ReceivedFrames[Targets]()
            # The connection counts under its role until it is closed.
            denied.role = received.role
            return denied
        return received

    def recheck(self) -> bool:
        """Return whether the user may do other things than at the last check.

        Raises `NotAuthenticated` if the user is gone.
        """
        if self._session is None:
            raise NotAuthenticated("a client certificate is required")
        self._session.check()
        self._generation = self._directory.generation
        if self._changes == self._session.changes:
            return False
        self._changes = self._session.changes
        self._allowed.clear()
        return True

    def require_all(self, names: list[bytes]) -> None:
        """Raise `AccessError` unless the user may receive from all *names*."""
        for name in names:
            self._require("receive", name)

    def _require(self, right: Right, name: bytes) -> None:
        # A client sends or receives, never both: one set of names is enough.
        if self._session is None or self._generation != self._directory.generation:
            self.recheck()
        if name in self._allowed:
            return
        assert self._session is not None  # noqa: S101  (`recheck` raises)
        queue = name.decode("utf-8", "backslashreplace")
        if not queue and right == "receive":
            if not self._session.allows_all(right, PROTOCOL):
                raise AccessDenied(self._session.user, right, f"all queues of {PROTOCOL}")
        else:
            self._session.require(right, PROTOCOL, queue)
        if len(self._allowed) < _CACHED_NAMES and len(name) <= _CACHED_NAME_BYTES:
            self._allowed.add(name)


class GuardedPeer(Peer):
    """A peer that is disconnected when it asks for what its user has no right to."""

    __slots__ = ("_directory", "_guard")

    def __init__(self, broker: BrokerState, directory: UserDirectory) -> None:
        super().__init__(broker)
        self._directory = directory
        self._connection = self._guard = GuardedConnection(broker, directory)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # (as in `Peer`)
        """Admit the client if its certificate is of a user."""
        super().connection_made(transport)
        if self._is_detached:
            return
        try:
            names = of_ssl(transport.get_extra_info("peercert"))
            self._guard.log_in(self._directory.log_in_by(names))
        except NotAuthenticated as error:
            self._deny(error)

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the bytes read and act on them, unless a frame is denied."""
        super().buffer_updated(nbytes)
        if self._guard.denial is not None and not self._is_detached:
            self._deny(self._guard.denial)

    def recheck(self) -> None:
        """Disconnect the client if its user may no longer receive from its queues."""
        if self._is_detached or not self._is_admitted:
            return
        # The wildcard, which the list begins with, does not count.
        limit = MAX_SUBSCRIPTIONS + 1
        try:
            # Changes of other users are more frequent, and there may be a million subscriptions.
            if self._guard.recheck():
                self._guard.require_all(self._broker.exchange.list_subscriptions(self, limit))
        except AccessError as error:
            self._deny(error)

    def _deny(self, error: AccessError) -> None:
        address = self._transport.get_extra_info("peername")
        if isinstance(error, AccessDenied | NotAuthenticated):
            shown = format_address(*address[:2]) if address else ""
            self._directory.denials.count(error, shown)
        # The log of denied calls has it already.
        self._disconnect(logging.DEBUG, error)


def _published(received: ReceivedFrames[Targets]) -> Iterator[bytes]:
    for start, end, _, count in received.runs:
        yield from names_in(received.data, start, end, count)
