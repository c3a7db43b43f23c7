"""Decoders from JSON and MessagePack to an Arrow type.

A payload that matches its type is decoded by one call in C. One that does not is decoded without a
type, and each of its fields is converted on its own.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final, TypedDict

import msgspec
import pyarrow as pa

UNREADABLE: Final = (ValueError, TypeError, OverflowError, ArithmeticError, RecursionError)
"""The errors that codecs raise for invalid bytes, and Arrow for values of another type."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
# A number is a time in seconds below the first, then in milliseconds, then in microseconds:
# each range begins in 1973 and ends in 5138, so no present time is read in a wrong unit.
_MILLISECONDS_FROM, _MICROSECONDS_FROM = 10**11, 10**14
# What Spark can show: the years 1 to 9999.
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999


class EpochMicros(int):
    """Microseconds since 1970."""


class EpochDays(int):
    """Days since 1970."""


def _integer(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_LEAVES: Final[dict[pa.DataType, Any]] = {
    pa.string(): str,
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.int8(): _integer(8),
    pa.int16(): _integer(16),
    pa.int32(): _integer(32),
    pa.int64(): _integer(64),
    pa.float32(): float,
    pa.float64(): float,
    pa.date32(): EpochDays,
    pa.timestamp("us"): EpochMicros,
    pa.timestamp("us", tz="UTC"): EpochMicros,
}
_KEYS: Final = frozenset((pa.string(), pa.int8(), pa.int16(), pa.int32(), pa.int64()))


class TypedDecoder:
    """Decodes one encoding to one type."""

    def __init__(self, kind: str, arrow: pa.DataType) -> None:
        self.arrow = arrow
        codec = msgspec.json if kind == "json" else msgspec.msgpack
        self.decode = codec.Decoder(_python(arrow), dec_hook=_hook).decode
        self._anything = codec.Decoder().decode

    def mend(self, body: bytes) -> tuple[Any, list[str]]:
        """Return *body* with null for each invalid field, and the problems."""
        problems: list[str] = []
        value = _mended(self._anything(body), self.arrow, "", problems)
        return value, problems


@lru_cache(64)
def typed_decoder(kind: str, arrow: pa.DataType) -> TypedDecoder:
    """Return the decoder to *arrow* from ``json`` or ``msgpack``, cached per process."""
    return TypedDecoder(kind, arrow)


def is_known(arrow: pa.DataType) -> bool:
    """Whether a field may have the type *arrow*."""
    return arrow in _LEAVES or pa.types.is_decimal(arrow)


def is_key(arrow: pa.DataType) -> bool:
    """Whether the keys of a map may have the type *arrow*."""
    return arrow in _KEYS


def _python(arrow: pa.DataType) -> Any:
    """Return the type as msgspec takes it."""
    if pa.types.is_struct(arrow):
        # A dict, since Arrow takes no objects; missing fields become null.
        return TypedDict("Fields", {f.name: _python(f.type) | None for f in arrow}, total=False)  # type: ignore[operator]
    if pa.types.is_list(arrow):
        return list[_python(arrow.value_type) | None]  # type: ignore[misc]
    if pa.types.is_map(arrow):
        return dict[_python(arrow.key_type), _python(arrow.item_type) | None]  # type: ignore[misc]
    return Decimal if pa.types.is_decimal(arrow) else _LEAVES[arrow]


def _mended(value: Any, arrow: pa.DataType, path: str, problems: list[str]) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(arrow) and isinstance(value, dict):
        return {
            f.name: _mended(value.get(f.name), f.type, f"{path}.{f.name}", problems) for f in arrow
        }
    if pa.types.is_list(arrow) and isinstance(value, list):
        return [
            _mended(each, arrow.value_type, f"{path}[{place}]", problems)
            for place, each in enumerate(value)
        ]
    if pa.types.is_map(arrow) and isinstance(value, dict):
        return _mended_map(value, arrow, path, problems)
    try:
        found = msgspec.convert(value, _python(arrow), dec_hook=_hook)
        pa.scalar(found, arrow)
    except UNREADABLE as reason:
        problems.append(f"{path.lstrip('.') or 'it'}: {reason}")
        return None
    return found


def _mended_map(
    value: dict[Any, Any], arrow: pa.MapType, path: str, problems: list[str]
) -> dict[Any, Any]:
    found = {}
    for key, each in value.items():
        try:
            name = msgspec.convert(key, _python(arrow.key_type), strict=not isinstance(key, str))
        except UNREADABLE as reason:
            problems.append(f"{path.lstrip('.')}: the key {key!r}: {reason}")
        else:
            found[name] = _mended(each, arrow.item_type, f"{path}[{key!r}]", problems)
    return found


def _hook(wanted: Any, value: Any) -> Any:
    return EpochMicros(_micros(value)) if wanted is EpochMicros else EpochDays(_days(value))


def _micros(value: Any) -> int:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(f"Expected a time, got {type(value).__name__}")
    size: Any = abs(value)
    times = 1_000_000 if size < _MILLISECONDS_FROM else 1000 if size < _MICROSECONDS_FROM else 1
    micros = round(value * times)
    if not _EARLIEST <= micros <= _LATEST:
        raise ValueError(f"Expected a time, got {value}")
    return micros


def _days(value: Any) -> int:
    if not isinstance(value, str):
        raise TypeError(f"Expected a date as text, got {type(value).__name__}")
    return (date.fromisoformat(value) - _FIRST_DAY).days
