"""One client's side of the conversation: its role first, then the frames its role may send.

Keeps what has come of a frame that is not complete, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.frames import LIMITS, Limits, Request, Rest, Run, scan, scan_requests

T = TypeVar("T")


class Role(Enum):
    """What a client says it is, in its first bytes."""

    PRODUCER = b"produce"
    CONSUMER = b"consume"
    PROBE = b"healthz"
    """Asks whether the server answers; ours, not the protocol's."""


_ROLES: Final = {role.value: role for role in Role}
_ROLE_BYTES: Final = 7


class Received(Generic[T]):
    """What some bytes meant."""

    __slots__ = ("data", "error", "requests", "role", "runs")

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        """What the runs are cut from."""
        self.role: Role | None = None
        """What the client has just said it is."""
        self.runs: list[Run[T]] = []
        self.requests: list[Request] = []
        self.error: RemoteProtocolError | None = None
        """Why the connection must be closed, after the rest has been done."""


class Connection(Generic[T]):
    """What one client has said so far. *routes* tells where the messages of a queue go."""

    __slots__ = ("_begun", "_limits", "_routes", "_wanted", "is_new_frame", "role", "unfinished")

    def __init__(self, routes: Mapping[bytes, T], limits: Limits = LIMITS) -> None:
        self._routes, self._limits = routes, limits
        self._begun: bytearray | None = None
        self._wanted = 0
        self.role: Role | None = None
        self.unfinished = 0
        """How many bytes of a frame that is not complete are kept."""
        self.is_new_frame = False
        """Whether the last bytes that came began that frame."""

    def receive(self, piece: bytes | memoryview) -> Received[T]:
        """Return what *piece* completes; after an error nothing more must be received."""
        begun = self._begun
        if begun is None:
            received: Received[T] = Received(bytes(piece))
        elif len(begun) + len(piece) < self._wanted:
            # Grows by what has come, never by what was announced.
            begun += piece
            self.unfinished, self.is_new_frame = len(begun), False
            return Received()
        else:
            received = Received(b"".join((begun, piece)))
        rest = self._understand(received)
        data, received.error = received.data, rest.error
        if rest.start == len(data) or rest.error is not None:
            self._begun, self.unfinished = None, 0
        else:
            self._begun, self._wanted = bytearray(memoryview(data)[rest.start :]), rest.wanted
            # A frame whose length has just become known is still the one that began before.
            self.is_new_frame = begun is None or rest.start > 0
            self.unfinished = len(self._begun)
        return received

    def _understand(self, received: Received[T]) -> Rest:
        data, start = received.data, 0
        if self.role is None:
            start = _ROLE_BYTES
            if len(data) < start:
                return Rest(0, _ROLE_BYTES, None)
            self.role = received.role = _ROLES.get(data[:start])
        if self.role is Role.PRODUCER:
            received.runs, rest = scan(data, start, self._routes, self._limits)
            return rest
        if self.role is Role.CONSUMER:
            received.requests, rest = scan_requests(data, start, self._limits)
            return rest
        if self.role is Role.PROBE:
            return Rest(len(data), 0, None)
        return Rest(0, 0, RemoteProtocolError(f"no role is called {data[:start]!r}"))
