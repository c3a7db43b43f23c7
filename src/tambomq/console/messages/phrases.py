"""Numbers, times and values in the words of the console. No clock, no Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_SECONDS_IN_TENTHS: Final = 10
_BYTES: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_KIB: Final = 1024


def duration(seconds: float) -> str:
    """Return a duration in two units at most: ``2 m 14 s``, ``1.2 s``, ``11 ms``."""
    seconds = abs(seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < _SECONDS_IN_TENTHS:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    shown = [
        f"{count:02d} {unit}" if index else f"{count} {unit}"
        for index, (count, unit) in enumerate(parts[:2])
        if count
    ]
    return " ".join(shown)


def ago(then_ms: int, now_ms: int) -> str:
    """Return ``2 m 14 s ago``, or ``in 2 m 14 s`` for a time to come."""
    if then_ms > now_ms:
        return f"in {duration((then_ms - now_ms) / 1000)}"
    return f"{duration((now_ms - then_ms) / 1000)} ago"


def moment(at_ms: int) -> str:
    """Return a time in UTC: ``2030-01-31T09:00:00.000Z``; as a number if no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number and what it counts: ``1 job``, ``4,212 jobs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``11th``."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number // 10 % 10 == 1 else suffix}"


def size(number: int) -> str:
    """Return a size: ``412 bytes``, ``10 MiB``."""
    if number == 1:
        return "1 byte"
    shown, unit = float(number), 0
    while shown >= _KIB and unit < len(_BYTES) - 1:
        shown, unit = shown / _KIB, unit + 1
    return f"{number:,} bytes" if not unit else f"{shown:.1f} {_BYTES[unit]}".replace(".0 ", " ")


def rate(per_s: float) -> str:
    """Return a rate: ``72 per second``, ``3 per minute``."""
    if per_s >= 1:
        return f"{per_s:,.0f} per second"
    return f"{per_s * 60:,.0f} per minute" if per_s * 60 >= 1 else f"{per_s * 3600:,.1f} per hour"
