"""Rates, shares and speeds as users write them."""

from __future__ import annotations

import math
import re
from typing import Final

from tambomq.errors import SettingsError

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|min|h))?")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)x")
_UNIT_S: Final = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def rate(text: str) -> float:
    """Return ``200/s``, ``60/m`` or ``200`` as a number per second; raise `SettingsError`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise SettingsError(f"a rate is written like 200/s, 60/m or 600/h, not {text!r}")
    return float(match[1]) / _UNIT_S[match[2]]


def share(text: str) -> float:
    """Return a percentage such as ``1%`` as a fraction; raise `SettingsError`."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 100:  # noqa: PLR2004  (all there is)
        raise SettingsError(f"a share is written like 1%, above 0 and up to 100, not {text!r}")
    return float(match[1]) / 100


def speed(text: str) -> float | None:
    """Return the factor of a speed such as ``2x``; `None` for ``max``."""
    if text == "max":
        return None
    match = _SPEED.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise SettingsError(f"a speed is written like 1x, 0.5x or max, not {text!r}")
    return float(match[1])


def part_of(total: int, share: float) -> int:
    """Return this share of *total*, rounded up; at least 1 unless *total* is 0."""
    return min(total, max(1, math.ceil(total * share)))
