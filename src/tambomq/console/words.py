"""Numbers, durations and sizes as the console writes them: ``1,204``, ``18 m 04 s``."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60))
_KIB: Final = 1024


def duration_text(seconds: float) -> str:
    """Return a duration in at most two units: ``0.4 s``, ``5 s``, ``18 m 04 s``, ``3 h 20 m``."""
    seconds = max(0.0, seconds)
    if seconds < 10 and seconds % 1:  # noqa: PLR2004  (tenths are noise from here on)
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for place, (unit, size) in enumerate(_UNITS):
        if whole >= size:
            lower, lower_size = (*_UNITS, ("s", 1))[place + 1]
            return f"{whole // size} {unit} {whole % size // lower_size:02} {lower}"
    return f"{whole} s"


def count_text(count: int, one: str = "", many: str = "") -> str:
    """Return a count with commas, and with its noun if one is given: ``1,204 jobs``."""
    noun = one if count == 1 else many or f"{one}s"
    return f"{count:,} {noun}" if one else f"{count:,}"


def rate_text(per_s: float) -> str:
    """Return a rate: ``0.4/s``, ``68/s``."""
    return f"{per_s:,.1f}/s" if per_s < 10 else f"{per_s:,.0f}/s"  # noqa: PLR2004  (as above)


def bytes_text(size: int) -> str:
    """Return a size: ``812 B``, ``6.2 MiB``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _KIB:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= _KIB
    return f"{value:.1f} TiB"
