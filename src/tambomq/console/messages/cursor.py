"""Cursors of message lists: a position as text that callers give back unread.

A cursor comes from a browser, so everything in it is checked.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, TypeAlias

import msgspec

from tambomq.errors import InvalidFormat

Position: TypeAlias = tuple[str | int, ...]
"""A place in a list, as the list itself wrote it."""

_MAX_CHARS = 4096
_Part = Annotated[str, msgspec.Meta(max_length=2048)] | Annotated[int, msgspec.Meta(ge=0)]
_decode = msgspec.json.Decoder(tuple[str, list[_Part]]).decode


def encode_cursor(list_name: str, position: Position) -> str:
    """Return *position* in the list of this name as text."""
    data = msgspec.json.encode((list_name, list(position)))
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_cursor(list_name: str, cursor: str) -> Position:
    """Return the position that *cursor* says; raise `InvalidFormat` if it is not of this list."""
    try:
        text = cursor[:_MAX_CHARS]
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        name, position = _decode(data)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise _invalid(cursor) from None
    if name != list_name:
        raise _invalid(cursor)
    return tuple(position)


def _invalid(cursor: str) -> InvalidFormat:
    return InvalidFormat("cursor", cursor[:40], "as `next` of an earlier page of the same list")
