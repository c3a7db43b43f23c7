"""Unary gRPC calls encoded as bytes, before the clock starts, for the load generator.

Header blocks change no table, so that one block serves every call of every connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf.message import Message

from tambomq.gomq.server.methods import SERVICE

PREFIX = "bench-"
"""How every name begins that is published to, subscribed by or spoken from here."""

# Of HPACK's static table: a field that is whole there, and names that are.
_POST, _HTTP, _AUTHORITY, _PATH, _CONTENT_TYPE = 3, 6, 1, 4, 31
_INDEXED, _NAME_BITS, _LENGTH_BITS = 0x80, 4, 7


def write(path: Path, calls: Iterable[tuple[str, Message, Mapping[str, str]]]) -> None:
    """Write *calls*: a method, a request, and metadata each."""
    with path.open("wb") as file:
        for method, request, words in calls:
            headers, body = block(method, words), request.SerializeToString()
            data = struct.pack(">BI", 0, len(body)) + body
            file.write(struct.pack(">II", len(headers), len(data)) + headers + data)


def block(method: str, words: Mapping[str, str]) -> bytes:
    """Return the headers of a call."""
    fields = [
        bytes((_INDEXED | _POST, _INDEXED | _HTTP)),
        _number(_PATH, _NAME_BITS) + _text(f"/{SERVICE}/{method}"),
        _number(_AUTHORITY, _NAME_BITS) + _text("127.0.0.1"),
        _number(_CONTENT_TYPE, _NAME_BITS) + _text("application/grpc"),
        _field("te", "trailers"),
        *(_field(name, word) for name, word in words.items()),
    ]
    return b"".join(fields)


def _field(name: str, word: str) -> bytes:
    return b"\0" + _text(name) + _text(word)


def _text(text: str) -> bytes:
    return _number(len(text.encode()), _LENGTH_BITS) + text.encode()


def _number(value: int, bits: int) -> bytes:
    max_prefix = (1 << bits) - 1
    if value < max_prefix:
        return bytes((value,))
    value -= max_prefix
    more = [max_prefix]
    while value >= 0x80:
        more.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*more, value))
