"""The JSON of a message in a Redis list: payload in base64, empty fields left out."""

from __future__ import annotations

import msgspec


class Element(msgspec.Struct, frozen=True, omit_defaults=True):
    """An element of the `QUEUE_` and `MESSAGES_` lists; fields are in the order of the wire."""

    id: str = ""
    timestamp: str = ""
    payload: bytes = b""


_EMPTY = Element()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Element).decode


def encode(id: str, timestamp: str, payload: bytes) -> bytes:
    """Return the bytes of an element."""
    return _encode(Element(id, timestamp, payload))


def decode(element: bytes) -> Element:
    """Return the message; an empty one if *element* is invalid, as existing servers do.

    Any Redis client may have pushed it; it must not block the messages behind it.
    """
    try:
        return _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _EMPTY


def is_message(element: bytes) -> bool:
    """Return whether *element* is a valid message."""
    try:
        _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
