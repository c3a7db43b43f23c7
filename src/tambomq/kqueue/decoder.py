"""What a consumer makes of the bytes it receives."""

from __future__ import annotations

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue.frames import (
    HEAD_BYTES,
    LIMITS,
    MESSAGE,
    OK,
    SMALLEST,
    Limits,
    Message,
    Rest,
    head_at,
    rest_of,
    size_at,
)


class MessageDecoder:
    """Turns bytes, arriving in pieces of any size, into messages."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits, self._wanted = limits, 0
        self._begun = bytearray()
        self._error: RemoteProtocolError | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that *data* completes.

        Raises `RemoteProtocolError` where a frame should begin and none does; whole messages
        before it are returned first, and the next call raises. A server's ``OK`` is skipped.
        """
        if self._error:
            raise self._error
        if self._begun:
            self._begun += data
            if len(self._begun) < self._wanted:
                return []
            data = bytes(self._begun)
        messages, rest = self._messages(data)
        self._begun = bytearray(data[rest.start :])
        self._wanted, self._error = rest.wanted, rest.error
        if self._error and not messages:
            raise self._error
        return messages

    def _messages(self, data: bytes) -> tuple[list[Message], Rest]:
        pos, end, messages = 0, len(data), []
        most_name, most = self._limits.name_bytes, self._limits.message_bytes
        while True:
            while data.startswith(OK, pos):
                pos += len(OK)
            if end - pos < SMALLEST:
                break
            kind, size = head_at(data, pos)
            name_end = pos + HEAD_BYTES + size
            if kind != MESSAGE or size > most_name or name_end + 4 > end:
                break
            (size,) = size_at(data, name_end)
            following = name_end + 4 + size
            if following > end or size > most:
                break
            messages.append(
                Message(data[pos + HEAD_BYTES : name_end], data[name_end + 4 : following])
            )
            pos = following
        if data[pos:] == OK[:1]:
            return messages, Rest(pos, len(OK), None)
        return messages, rest_of(data, pos, b"*", self._limits)
