"""One client's side of the conversation: its role first, then the frames its role may send.

Keeps what has come of a frame that is not complete, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.frames import (
    LIMITS,
    Limits,
    MessageBeyondLimit,
    Request,
    Rest,
    Run,
    scan,
    scan_requests,
)

T = TypeVar("T")


class Role(Enum):
    """What a client says it is, in its first bytes."""

    PRODUCER = b"produce"
    CONSUMER = b"consume"
    PROBE = b"healthz"
    """Asks whether the server answers; ours, not the protocol's."""


_ROLES: Final = {role.value: role for role in Role}
_ROLE_BYTES: Final = 7
# The interactive client of the existing server sends five of them for an empty line.
_FILLER: Final = re.compile(rb"\0+")


class Received(Generic[T]):
    """What some bytes meant."""

    __slots__ = ("data", "error", "junk", "requests", "role", "runs")

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        """What the runs are cut from."""
        self.role: Role | None = None
        """What the client has just said it is."""
        self.runs: list[Run[T]] = []
        self.requests: list[Request] = []
        self.junk = 0
        """How often something was left out that is no frame."""
        self.error: RemoteProtocolError | None = None
        """Why the connection must be closed, after the rest has been done."""


class Connection(Generic[T]):
    """What one client has said so far. *routes* tells where the messages of a queue go.

    A *lenient* one leaves out what is no frame instead of calling it an error: NUL bytes, or all
    that has come with it. Only a message that is too long is still an error, since its body could
    not be told from frames.
    """

    __slots__ = (
        "_begun",
        "_lenient",
        "_limits",
        "_routes",
        "_wanted",
        "is_new_frame",
        "role",
        "unfinished",
    )

    def __init__(
        self, routes: Mapping[bytes, T], limits: Limits = LIMITS, *, lenient: bool = False
    ) -> None:
        self._routes, self._limits, self._lenient = routes, limits, lenient
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
        rest = self._understand(received, 0)
        if self._lenient:
            rest = self._leave_out_junk(received, rest)
        data, received.error = received.data, rest.error
        if rest.start == len(data) or rest.error is not None:
            self._begun, self.unfinished = None, 0
        else:
            self._begun, self._wanted = bytearray(memoryview(data)[rest.start :]), rest.wanted
            # A frame whose length has just become known is still the one that began before.
            self.is_new_frame = begun is None or rest.start > 0
            self.unfinished = len(self._begun)
        return received

    def _understand(self, received: Received[T], start: int) -> Rest:
        data = received.data
        if self.role is None:
            word = data[start : start + _ROLE_BYTES]
            if len(word) < _ROLE_BYTES and not (self._lenient and _is_no_role(word)):
                return Rest(start, _ROLE_BYTES, None)
            self.role = received.role = _ROLES.get(word)
            if self.role is None:
                return Rest(start, 0, RemoteProtocolError(f"no role is called {word!r}"))
            start += _ROLE_BYTES
        if self.role is Role.PRODUCER:
            runs, rest = scan(data, start, self._routes, self._limits)
            received.runs += runs
            return rest
        if self.role is Role.CONSUMER:
            requests, rest = scan_requests(data, start, self._limits)
            received.requests += requests
            return rest
        return Rest(len(data), 0, None)

    def _leave_out_junk(self, received: Received[T], rest: Rest) -> Rest:
        """Cut out what is no frame: NUL bytes, else all that has come behind it too."""
        data, kept, begin, cut = received.data, list[bytes](), 0, 0
        while rest.error is not None and not isinstance(rest.error, MessageBeyondLimit):
            received.junk += 1
            kept.append(data[begin : rest.start])
            filler = _FILLER.match(data, rest.start)
            end = filler.end() if filler else len(data)
            cut, begin, known = cut + end - rest.start, end, len(received.runs)
            if end == len(data):
                rest = Rest(end, 0, None)
                break
            rest = self._understand(received, end)
            # Runs are cut from what is left, which has no gaps.
            received.runs[known:] = [
                (first - cut, last - cut, targets, count)
                for first, last, targets, count in received.runs[known:]
            ]
        if not kept:
            return rest
        received.data = b"".join((*kept, data[begin:]))
        return Rest(rest.start - cut, rest.wanted, rest.error)


def _is_no_role(word: bytes) -> bool:
    return not any(role.startswith(word) for role in _ROLES)
