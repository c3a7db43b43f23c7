"""Decodes the byte stream that a consumer receives into messages."""

from __future__ import annotations

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.frames import (
    HEAD_BYTES,
    LIMITS,
    MESSAGE,
    MIN_MESSAGE_BYTES,
    OK,
    Limits,
    Message,
    Remainder,
    head_at,
    remainder_at,
    size_at,
)


class MessageDecoder:
    """Turns bytes, arriving in pieces of any size, into messages."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits, self._needed = limits, 0
        self._partial = bytearray()
        self._error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that *data* completes.

        Raises `RemoteProtocolError` for bytes that are no frame; complete messages before them
        are returned first, and the next call raises. A server's ``OK`` is skipped.
        """
        if self._error:
            raise self._error
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return []
            data = bytes(self._partial)
        messages, rest = self._messages(data)
        self._partial = bytearray(data[rest.start :])
        self._needed, self._error = rest.needed, rest.error
        if self._error and not messages:
            raise self._error
        return messages

    def _messages(self, data: bytes) -> tuple[list[Message], Remainder]:
        pos, end, messages = 0, len(data), []
        max_name, max_body = self._limits.name_bytes, self._limits.message_bytes
        while True:
            while data.startswith(OK, pos):
                pos += len(OK)
            if end - pos < MIN_MESSAGE_BYTES:
                break
            kind, size = head_at(data, pos)
            name_end = pos + HEAD_BYTES + size
            if kind != MESSAGE or size > max_name or name_end + 4 > end:
                break
            (size,) = size_at(data, name_end)
            frame_end = name_end + 4 + size
            if frame_end > end or size > max_body:
                break
            messages.append(
                Message(data[pos + HEAD_BYTES : name_end], data[name_end + 4 : frame_end])
            )
            pos = frame_end
        if data[pos:] == OK[:1]:
            return messages, Remainder(pos, len(OK), None)
        return messages, remainder_at(data, pos, b"*", self._limits)
