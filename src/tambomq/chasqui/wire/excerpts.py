"""The decoder of jobs of which only the two ends are known: lists show jobs without their payloads.

An envelope ends with the numbers that a list needs, so its tail is enough.
"""

from __future__ import annotations

from tambomq.bulk.excerpts import Excerpt
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.errors import RemoteProtocolError

# By type byte: the width of the length that follows.
_TEXT_LENGTHS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_BIN_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_FIXTEXT, _FIXTEXT_END = 0xA0, 0xBF
_SHORTEST, _LONGEST = 0x93, 0x95


def decode_envelope_excerpt(found: Excerpt) -> tuple[Envelope, int]:
    """Return a job with the beginning of its payload, and the payload's size.

    Raises `RemoteProtocolError` if it is no envelope, or one in an unusual form that is cut off.
    """
    if (whole := found.whole) is not None:
        envelope = decode_envelope(whole)
        return envelope, len(envelope.payload)
    head = found.head
    at = _skip_id(head)
    width = _BIN_LENGTHS.get(head[at]) if at < len(head) else None
    if width is None or not _SHORTEST <= head[0] <= _LONGEST:
        raise RemoteProtocolError("a long envelope in an unusual form")
    first = at + 1 + width
    size = int.from_bytes(head[at + 1 : first], "big")
    rest = found.size - first - size
    if not 0 < rest <= len(found.tail):
        raise RemoteProtocolError("a long envelope with an invalid length")
    payload = head[first : first + size]
    short = b"\xc6" + len(payload).to_bytes(4, "big") + payload
    return decode_envelope(head[:at] + short + found.tail[-rest:]), size


def decode_member_excerpt(found: Excerpt) -> tuple[str, Excerpt]:
    """Return the name of a delayed member, and its envelope; raise `RemoteProtocolError`."""
    name, envelope = decode_member(found.head)
    size = found.size - len(found.head) + len(envelope)
    return name, Excerpt(envelope, found.tail, size)


def _skip_id(head: bytes) -> int:
    """Return where the value after the id begins; the end if the id is not text."""
    kind = head[1] if len(head) > 1 else 0
    if _FIXTEXT <= kind <= _FIXTEXT_END:
        return 2 + kind - _FIXTEXT
    if (width := _TEXT_LENGTHS.get(kind)) is not None:
        return 2 + width + int.from_bytes(head[2 : 2 + width], "big")
    return len(head)
