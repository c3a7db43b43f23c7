"""The protocol state of one client: first its role, then the frames that role may send.

Keeps the bytes of an incomplete frame, and nothing else. No I/O.
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
    Remainder,
    Request,
    Run,
    scan,
    scan_requests,
)

T = TypeVar("T")


class Role(Enum):
    """The role that a client sends as its first bytes."""

    PRODUCER = b"produce"
    CONSUMER = b"consume"
    PROBE = b"healthz"
    """A health probe; an extension to the protocol."""


_ROLES: Final = {role.value: role for role in Role}
_ROLE_BYTES: Final = 7
# The original interactive client sends five NUL bytes for an empty line.
_FILLER: Final = re.compile(rb"\0+")


class ReceivedFrames(Generic[T]):
    """The parsed content of one read."""

    __slots__ = ("data", "error", "junk", "requests", "role", "runs")

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        """The bytes that the offsets of runs refer to."""
        self.role: Role | None = None
        """The client's role, if these bytes completed it."""
        self.runs: list[Run[T]] = []
        self.requests: list[Request] = []
        self.junk = 0
        """How many invalid stretches were skipped (lenient connections only)."""
        self.error: RemoteProtocolError | None = None
        """Why the connection must be closed, once the rest has been handled."""


class Connection(Generic[T]):
    """The parser of one client's bytes. *routes* maps a queue's name to its targets.

    A *lenient* connection skips invalid bytes instead of raising an error: NUL bytes, or else the
    rest of the read. A message that is too long is still an error, since its body could not be
    distinguished from frames.
    """

    __slots__ = (
        "_lenient",
        "_limits",
        "_needed",
        "_partial",
        "_routes",
        "is_new_frame",
        "partial_bytes",
        "role",
    )

    def __init__(
        self, routes: Mapping[bytes, T], limits: Limits = LIMITS, *, lenient: bool = False
    ) -> None:
        self._routes, self._limits, self._lenient = routes, limits, lenient
        self._partial: bytearray | None = None
        self._needed = 0
        self.role: Role | None = None
        self.partial_bytes = 0
        """Bytes kept of an incomplete frame."""
        self.is_new_frame = False
        """Whether the last read started that frame."""

    def receive(self, piece: bytes | memoryview) -> ReceivedFrames[T]:
        """Parse *piece*, the next bytes; must not be called again after an error."""
        partial = self._partial
        if partial is None:
            received: ReceivedFrames[T] = ReceivedFrames(bytes(piece))
        elif len(partial) + len(piece) < self._needed:
            # Grows by the bytes received, never by the announced length.
            partial += piece
            self.partial_bytes, self.is_new_frame = len(partial), False
            return ReceivedFrames()
        else:
            received = ReceivedFrames(b"".join((partial, piece)))
        rest = self._parse(received, 0)
        if self._lenient:
            rest = self._skip_junk(received, rest)
        data, received.error = received.data, rest.error
        if rest.start == len(data) or rest.error is not None:
            self._partial, self.partial_bytes = None, 0
        else:
            self._partial, self._needed = bytearray(memoryview(data)[rest.start :]), rest.needed
            # A frame whose length has just become known still began earlier.
            self.is_new_frame = partial is None or rest.start > 0
            self.partial_bytes = len(self._partial)
        return received

    def _parse(self, received: ReceivedFrames[T], start: int) -> Remainder:
        data = received.data
        if self.role is None:
            word = data[start : start + _ROLE_BYTES]
            if len(word) < _ROLE_BYTES and not (self._lenient and _cannot_be_role(word)):
                return Remainder(start, _ROLE_BYTES, None)
            self.role = received.role = _ROLES.get(word)
            if self.role is None:
                return Remainder(start, 0, RemoteProtocolError(f"unknown role {word!r}"))
            start += _ROLE_BYTES
        if self.role is Role.PRODUCER:
            runs, rest = scan(data, start, self._routes, self._limits)
            received.runs += runs
            return rest
        if self.role is Role.CONSUMER:
            requests, rest = scan_requests(data, start, self._limits)
            received.requests += requests
            return rest
        return Remainder(len(data), 0, None)

    def _skip_junk(self, received: ReceivedFrames[T], rest: Remainder) -> Remainder:
        """Cut out invalid bytes: a stretch of NUL bytes, else the rest of the read."""
        data, kept, begin, skipped = received.data, list[bytes](), 0, 0
        while rest.error is not None and not isinstance(rest.error, MessageBeyondLimit):
            received.junk += 1
            kept.append(data[begin : rest.start])
            filler = _FILLER.match(data, rest.start)
            end = filler.end() if filler else len(data)
            skipped, begin, known = skipped + end - rest.start, end, len(received.runs)
            if end == len(data):
                rest = Remainder(end, 0, None)
                break
            rest = self._parse(received, end)
            # Offsets of runs refer to the data without the skipped bytes.
            received.runs[known:] = [
                (first - skipped, last - skipped, targets, count)
                for first, last, targets, count in received.runs[known:]
            ]
        if not kept:
            return rest
        received.data = b"".join((*kept, data[begin:]))
        return Remainder(rest.start - skipped, rest.needed, rest.error)


def _cannot_be_role(word: bytes) -> bool:
    return not any(role.startswith(word) for role in _ROLES)
