"""MessagePack helpers: payloads, structs as arrays or maps, and values followed by other bytes.

Decoding raises nothing but `RemoteProtocolError`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec.msgpack import Decoder, Encoder

from tambomq.chasqui.job import U32
from tambomq.errors import InvalidPayload, RemoteProtocolError

# msgspec itself refuses numbers beyond 64 bits.
Uint = Annotated[int, msgspec.Meta(ge=0)]
Uint32 = Annotated[int, msgspec.Meta(ge=0, le=U32)]
_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]

_INSTEAD = {
    "model_dump": 'model_dump(mode="json")',
    "tolist": "tolist()",
    "to_dict": "to_dict()",
    "__fspath__": "text, str(path)",
    "__iter__": "items, list(…)",
}
"""By method name, what to pass instead of a value: for pydantic models, NumPy arrays and numbers,
and so on."""

UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def _plain(value: Any) -> Any:
    """Convert an instance of a subclass to its base type, as the engine's Python package does."""
    bases: tuple[type[Any], ...] = (str, int, float, bytes, dict, list)
    for base in bases:
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__name__} has no form in MessagePack{_hint(value)}")


def _hint(value: Any) -> str:
    """Return what to pass instead of *value*, as the end of an error message."""
    for method, instead in _INSTEAD.items():
        if callable(getattr(value, method, None)):
            return f": give its {instead}"
    return ": give a dict, list, str, bytes, number, bool or None"


encode = Encoder(enc_hook=_plain).encode
_decode = Decoder().decode


def encode_payload(value: Any) -> bytes:
    """Encode *value* as MessagePack; raise `InvalidPayload` if it cannot be."""
    try:
        return encode(value)
    except UNWRITABLE as error:
        raise InvalidPayload(value, error) from error


def decode_payload(data: bytes) -> Any:
    """Decode *data*, which is exactly one value; raise `RemoteProtocolError` if it is not."""
    try:
        return _decode(data)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"not a MessagePack value: {error}") from error


class Shape(msgspec.Struct, frozen=True):
    """The fields of a struct, which peers may encode as an array or as a map."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    """Values of the last fields, which a map may leave out."""
    shortest: int
    """The minimum length of an array; later fields have defaults."""

    def slots(self, value: Any) -> list[Any]:
        """Return the values of all fields in order; raise `RemoteProtocolError` if invalid."""
        required = len(self.names) - len(self.defaults)
        if isinstance(value, dict):
            value = dict(zip(self.names[required:], self.defaults, strict=True)) | value
            if all(name in value for name in self.names):
                return [value[name] for name in self.names]
        elif isinstance(value, list) and self.shortest <= len(value) <= len(self.names):
            return value + list(self.defaults[len(value) - required :])
        raise RemoteProtocolError(f"no array or map of {', '.join(self.names)}")


def variant(value: Any) -> tuple[Any, Any]:
    """Return the name or index of an enum variant, and its fields or `None`."""
    if isinstance(value, dict) and len(value) == 1:
        return next(iter(value.items()))
    return value, None


def checked(value: Any, kind: Any) -> Any:
    """Return *value* if it is of *kind*; raise `RemoteProtocolError` if not."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(str(error)) from error


def text(value: Any) -> str:
    """Return *value* if it is text or UTF-8; raise `RemoteProtocolError` if not."""
    try:
        return value.decode() if isinstance(value, bytes) else checked(value, str)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"not UTF-8: {value[:80]!r}") from error


def octets(value: Any) -> bytes:
    """Return *value* if it is bytes or an array of them; raise `RemoteProtocolError` if not."""
    return value if isinstance(value, bytes) else bytes(checked(value, list[_Byte]))


def first_value(data: bytes) -> Any:
    """Decode the value at the start of *data*; raise `RemoteProtocolError` if there is none."""
    try:
        return _decode(data)
    except UNREADABLE:
        return decode_payload(data[: _value_end(data)])


# By type byte: the number of bytes and of nested values that follow it.
_FIXED = {0xA0 + n: (n, 0) for n in range(32)} | {0x90 + n: (0, n) for n in range(16)}
_FIXED |= {0x80 + n: (0, 2 * n) for n in range(16)} | {0xC7 + n: (1, 0) for n in range(3)}
_FIXED |= {0xCA + n: (size, 0) for n, size in enumerate((4, 8, 1, 2, 4, 8, 1, 2, 4, 8))}
_FIXED |= {0xD4 + n: (1 + (1 << n), 0) for n in range(5)}
# By type byte: the width of the count, and the bytes and nested values per counted item.
_COUNTED = {0xDC: (2, 0, 1), 0xDD: (4, 0, 1), 0xDE: (2, 0, 2), 0xDF: (4, 0, 2)}
_COUNTED |= {first + n: (1 << n, 1, 0) for first in (0xC4, 0xC7, 0xD9) for n in range(3)}


def _value_end(data: bytes) -> int:
    """Return the end of the first value; the end of *data* or beyond if it is truncated."""
    at, values = 0, 1
    while values and at < len(data):
        size, nested = _FIXED.get(data[at], (0, 0))
        width, size_each, nested_each = _COUNTED.get(data[at], (0, 0, 0))
        count = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        at += 1 + width + size + count * size_each
        values += nested + count * nested_each - 1
    return at
