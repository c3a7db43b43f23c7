"""Bodies from one protocol in the words of another. What comes back is what was sent.

RSMQ and GOMQ carry bytes, ChasquiMQ values as MessagePack. Text and bytes are the same in both;
other values become JSON, and what has no JSON form stays MessagePack.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tambomq.chasqui.packing import UNREADABLE, encode_payload
from tambomq.errors import InvalidPayload, RemoteProtocolError

KINDS: Final = ("text", "json", "raw")
"""What bytes become as a payload: text, the value whose JSON they are, or what they are already."""
_UNREADABLE: Final = (*UNREADABLE, InvalidPayload, RemoteProtocolError, UnicodeDecodeError)


def from_payload(payload: bytes) -> bytes:
    """Return a payload as bytes for those who know no values."""
    try:
        value = msgspec.msgpack.decode(payload)
        if isinstance(value, str):
            return value.encode()
        return value if isinstance(value, bytes) else msgspec.json.encode(value)
    except (*_UNREADABLE, TypeError):
        return payload


def to_payload(body: bytes, kind: str = "text") -> bytes:
    """Return bytes as a payload of one of `KINDS`; what cannot be that becomes text, or bytes."""
    try:
        if kind == "json":
            return encode_payload(msgspec.json.decode(body))
        if kind == "raw":
            msgspec.msgpack.decode(body, type=msgspec.Raw)
            return body
    except _UNREADABLE:
        pass
    try:
        return encode_payload(body.decode())
    except UnicodeDecodeError:
        return encode_payload(body)
