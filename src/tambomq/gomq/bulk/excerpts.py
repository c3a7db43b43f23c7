"""Read-only calls of GOMQ messages without whole large payloads, and of what holds a key back."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import msgspec

from tambomq.bulk.excerpts import BYTES, PAGE, Excerpt
from tambomq.gomq import keys, wire
from tambomq.store.call import Call, load_script

_HANDED = load_script("tambomq.gomq.bulk", "handed_excerpts")

# As `wire` and existing servers write an element. Others are read only if they are whole.
_HEAD: Final = re.compile(
    rb'\{"id":"([^"\\]{0,160})",(?:"timestamp":"([^"\\]{0,100})",)?"payload":"([A-Za-z0-9+/=]*)'
)
_XID: Final = re.compile(r"[0-9a-v]{20}", re.ASCII)
_XID_BITS_BEHIND_ITS_SECOND: Final = 68


class ElementExcerpt(msgspec.Struct, frozen=True):
    """A message of a list, with the beginning of its payload."""

    id: str
    """Empty if it is no message of GOMQ."""
    timestamp: str
    payload: bytes
    """All of an element that is no message."""
    size: int
    """Of the payload."""

    @property
    def published_ms(self) -> int | None:
        """When it was published, to the second, by its id; `None` if that is no xid."""
        if not _XID.fullmatch(self.id):
            return None
        return (int(self.id, 32) >> _XID_BITS_BEHIND_ITS_SECOND) * 1000


class HandedBatch(msgspec.Struct, frozen=True):
    """The messages of one key in a batch that a peer has not acknowledged."""

    name: str
    """Empty if there is none."""
    total: int
    messages: list[ElementExcerpt]


class KeyState(msgspec.Struct, frozen=True):
    """What holds the dispatch of a key back."""

    is_unsettled: bool
    """Messages of departed peers must be put back first."""
    full_list: str
    """The dedicated queue that has too many messages; '' if none has."""


def handed(
    key: str, consumer: str, peer: str, first: int = 0, count: int = PAGE, *, ends: int = BYTES
) -> Call[HandedBatch]:
    """Return messages of *key* that *peer* has received and not acknowledged."""
    args = (key, first, count, ends)
    return Call(_HANDED, (keys.handed(consumer, peer),), args, _handed, repeatable=True)


def key_state(key: str) -> Call[KeyState]:
    """Return what holds the dispatch of *key* back."""
    return Call("HMGET", (keys.tally(key),), ("leaving", "full"), _state, repeatable=True)


def backlog_held_until(key: str) -> Call[int | None]:
    """Return until when the backlog of *key* is held, in milliseconds; `None` if it is not."""
    return Call("ZSCORE", (keys.HELD,), (key,), _milliseconds, repeatable=True)


def decode_element(found: Excerpt) -> ElementExcerpt:
    """Return the message of an element of which the two ends are known."""
    if (value := found.whole) is not None and wire.is_message(value):
        element = wire.decode(value)
        return ElementExcerpt(element.id, element.timestamp, element.payload, len(element.payload))
    if (match := _HEAD.match(found.head)) is None:
        return ElementExcerpt("", "", found.head, found.size)
    id, timestamp, encoded = match.groups()
    whole = encoded[: len(encoded) // 4 * 4]
    try:
        payload = base64.b64decode(whole, validate=True)
    except binascii.Error:
        payload = b""
    # Four characters are three bytes; '"}' follows them.
    padding = found.tail[:-2][-2:].count(b"=")
    size = (found.size - match.start(3) - 2) // 4 * 3 - padding
    return ElementExcerpt(_text(id), _text(timestamp or b""), payload, size)


def _handed(reply: list[Any]) -> HandedBatch:
    name, total, *flat = reply
    parts = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    messages = [decode_element(Excerpt(head, tail, size)) for head, tail, size in parts]
    return HandedBatch(_text(name), total, messages)


def _state(reply: list[bytes | None]) -> KeyState:
    leaving, full = reply
    return KeyState(leaving is not None, _text(full or b""))


def _milliseconds(reply: bytes | None) -> int | None:
    try:
        return None if reply is None else int(float(reply))
    except (ValueError, OverflowError):
        return None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
