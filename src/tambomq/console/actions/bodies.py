"""Bodies as people type them: text, JSON, base64, or MessagePack written as JSON."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, Literal, get_args

import msgspec

from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import InvalidFormat

BodyEncoding = Literal["text", "json", "base64", "msgpack"]
ENCODINGS: Final[tuple[str, ...]] = get_args(BodyEncoding)


def value_of(body: str, encoding: str) -> Any:
    """Return *body* as the value that a ChasquiMQ job carries. Raises `InvalidFormat`."""
    if encoding in ("json", "msgpack"):
        return _json(body)
    return bytes_of(body, encoding) if encoding == "base64" else _text(body, encoding)


def bytes_of(body: str, encoding: str) -> bytes:
    """Return *body* as the bytes that other protocols store. Raises `InvalidFormat`."""
    if encoding == "base64":
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidFormat("body", body[:40], f"base64: {error}") from None
    if encoding == "msgpack":
        return encode_payload(_json(body))
    if encoding == "json":
        # It is stored as it was typed; only that it is JSON is checked.
        _json(body)
        return body.encode()
    return _text(body, encoding).encode()


def _json(body: str) -> Any:
    try:
        return msgspec.json.decode(_text(body, "text"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidFormat("body", body[:40], f"JSON: {error}") from None


def _text(body: str, encoding: str) -> str:
    if encoding not in ENCODINGS:
        raise InvalidFormat("encoding", encoding, f"one of {', '.join(ENCODINGS)}")
    try:
        body.encode()
    except UnicodeEncodeError:
        raise InvalidFormat("body", body[:40], "text without lone surrogates") from None
    return body
