"""gRPC's additions to HTTP/2: length-prefixed messages, deadlines, escaped statuses.

Refusals are `BrokerRefused` with the status that gRPC's own servers answer with.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from tambomq.errors import BrokerRefused

PREFIX_BYTES: Final = 5
"""One byte says whether the message is compressed, four how long it is."""

ENCODINGS: Final = "identity,deflate,gzip"
"""Accepted encodings of requests, as gRPC lists them. Replies are not compressed."""

# The `wbits` of zlib for each encoding. Deflate is accepted because gRPC's own servers accept it.
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}

_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_UNIT_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
# Everything printable in ASCII but the percent sign itself.
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


def frame(message: bytes) -> bytes:
    """Return *message* with its prefix, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def check(start: bytes | bytearray, *, max_bytes: int) -> None:
    """Raise `BrokerRefused` if *start* cannot become one message of at most *max_bytes*.

    Call it before buffering more.
    """
    if len(start) < PREFIX_BYTES:
        return
    if start[0] > 1:
        raise _refused("INTERNAL", f"a message begins with the byte 0 or 1, not {start[0]}")
    size = int.from_bytes(start[1:PREFIX_BYTES], "big")
    if size > max_bytes:
        raise _too_long(f"{size}", max_bytes)
    if len(start) > PREFIX_BYTES + size:
        raise _refused("UNIMPLEMENTED", "this call takes one message, and received more")


def unframe(body: bytes | bytearray, *, max_bytes: int, encoding: str = "identity") -> bytes:
    """Return the message that is the whole *body*. Raises `BrokerRefused`."""
    check(body, max_bytes=max_bytes)
    if not body:
        raise _refused("UNIMPLEMENTED", "this call takes one message, and received none")
    if len(body) < PREFIX_BYTES or len(body) - PREFIX_BYTES < int.from_bytes(body[1:5], "big"):
        raise _refused("INTERNAL", "the request ends within its message")
    message = bytes(body[PREFIX_BYTES:])
    return _decompressed(message, encoding, max_bytes) if body[0] else message


def take(buffer: bytearray, *, max_bytes: int) -> Iterator[bytes]:
    """Remove the complete messages from *buffer* and yield them, with their prefixes.

    Raises `BrokerRefused` if the next message is invalid or too long.
    """
    while len(buffer) >= PREFIX_BYTES:
        end = PREFIX_BYTES + int.from_bytes(buffer[1:PREFIX_BYTES], "big")
        check(buffer[:PREFIX_BYTES], max_bytes=max_bytes)
        if len(buffer) < end:
            return
        message = bytes(buffer[:end])
        del buffer[:end]
        yield message


def check_encoding(encoding: str) -> None:
    """Raise `BrokerRefused` unless requests may have that *encoding*."""
    if encoding != "identity" and encoding not in _WINDOWS:
        raise _refused("UNIMPLEMENTED", f"requests may be compressed with {ENCODINGS} only")


def timeout_s(text: str) -> float:
    """Return the seconds of a ``grpc-timeout`` header. Raises `BrokerRefused`."""
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        rule = "up to eight digits and one of H M S m u n"
        raise _refused("INVALID_ARGUMENT", f"grpc-timeout {text!r} is not valid: {rule}")
    return int(match[1]) * _UNIT_S[match[2]]


def escaped(text: str) -> bytes:
    """Return *text* percent-encoded for ``grpc-message``."""
    return quote(text, safe=_PLAIN, errors="replace").encode()


def _decompressed(message: bytes, encoding: str, max_bytes: int) -> bytes:
    if encoding not in _WINDOWS:
        raise _refused("INTERNAL", "a message is compressed, but grpc-encoding does not say how")
    unzip = zlib.decompressobj(_WINDOWS[encoding])
    wrong = f"the message is not compressed with {encoding}"
    try:
        # Decompress at most one byte too many: that shows it is too long, and bounds the memory.
        plain = unzip.decompress(message, max_bytes + 1)
    except zlib.error as error:
        raise _refused("INTERNAL", f"{wrong}: {error}") from error
    if len(plain) > max_bytes:
        raise _too_long("more", max_bytes)
    if not unzip.eof or unzip.unused_data:
        raise _refused("INTERNAL", f"{wrong}: wrong length")
    return plain


def _too_long(size: str, max_bytes: int) -> BrokerRefused:
    return _refused("RESOURCE_EXHAUSTED", f"a message of {size} bytes exceeds {max_bytes}")


def _refused(status: str, details: str) -> BrokerRefused:
    return BrokerRefused("call", status, details)
