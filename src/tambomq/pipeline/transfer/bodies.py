"""Conversion of bodies between protocols. A round trip gives back what was sent.

RSMQ and GOMQ carry bytes, ChasquiMQ values as MessagePack. Text and bytes are the same in both;
other values become JSON, and what has no JSON form stays MessagePack.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tambomq.chasqui.wire.msgpack import UNREADABLE, encode_payload
from tambomq.errors import InvalidPayload, RemoteProtocolError

KINDS: Final = ("text", "json", "raw")
"""How bytes are read for a payload: as text, as JSON, or as MessagePack."""
_UNREADABLE: Final = (*UNREADABLE, InvalidPayload, RemoteProtocolError, UnicodeDecodeError)


def from_payload(payload: bytes) -> bytes:
    """Return a payload as the body for a protocol that carries bytes."""
    try:
        value = msgspec.msgpack.decode(payload)
        if isinstance(value, str):
            return value.encode()
        return value if isinstance(value, bytes) else msgspec.json.encode(value)
    except (*_UNREADABLE, TypeError):
        return payload


def to_payload(body: bytes, kind: str = "text") -> bytes:
    """Return bytes as a payload, read as *kind*; else as text, else as bytes."""
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
