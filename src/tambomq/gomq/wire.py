"""A message as it stands in a list: JSON, its payload in base64, empty fields left out."""

from __future__ import annotations

import msgspec


class Element(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands in `QUEUE_` and `MESSAGES_` lists, in the order of its fields."""

    id: str = ""
    timestamp: str = ""
    payload: bytes = b""


_EMPTY = Element()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Element).decode


def encode(id: str, timestamp: str, payload: bytes) -> bytes:
    """Return the element."""
    return _encode(Element(id, timestamp, payload))


def decode(element: bytes) -> Element:
    """Return what *element* says; an empty message if it is no such JSON, as existing servers do.

    Somebody else may have pushed it; it must not keep those behind it from their reader.
    """
    try:
        return _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _EMPTY


def is_message(element: bytes) -> bool:
    """Whether *element* is a message, or what a list has instead of one."""
    try:
        _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
