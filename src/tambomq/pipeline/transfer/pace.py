"""How fast, how many and for how long, as people write it; and when the next may go.

Nothing here waits: what must wait is told for how long.
"""

from __future__ import annotations

import math
import re
from typing import Final

from tambomq.errors import SettingsError

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|min|h))?")
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)x")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|h)?")
_UNIT_S: Final = {None: 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_STEPS_PER_S: Final = 5


def rate(text: str) -> float:
    """Return how many per second ``200/s``, ``60/min`` or ``200`` is; raise `SettingsError`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise SettingsError(f"a rate is written like 200/s or 60/min, not {text!r}")
    return float(match[1]) / _UNIT_S[match[2]]


def seconds(text: str) -> float:
    """Return how many seconds ``30s``, ``5min`` or ``2h`` is; raise `SettingsError`."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise SettingsError(f"a time is written like 30s, 5min or 2h, not {text!r}")
    return float(match[1]) * _UNIT_S[match[2]]


def share(text: str) -> float:
    """Return the part of one that ``1%`` is; raise `SettingsError`."""
    match = _PERCENT.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= 100:  # noqa: PLR2004  (all there is)
        raise SettingsError(f"a share is written like 1%, above 0 and up to 100, not {text!r}")
    return float(match[1]) / 100


def speed(text: str) -> float | None:
    """Return how many times as fast as it was ``2x`` is, `None` for ``max``."""
    if text == "max":
        return None
    match = _SPEED.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise SettingsError(f"a speed is written like 1x, 0.5x or max, not {text!r}")
    return float(match[1])


def part_of(total: int, share: float) -> int:
    """Return how many of *total* a share is: one at least, if there is one."""
    return min(total, max(1, math.ceil(total * share)))


class Pace:
    """Lets *per_s* things happen in a second; `None` for as many as can."""

    __slots__ = ("_per_s", "step")

    def __init__(self, per_s: float | None, most: int) -> None:
        self._per_s = per_s
        # Small steps, so that a worker sees a flow and not a flood each second.
        self.step = most if per_s is None else max(1, min(most, int(per_s / _STEPS_PER_S)))
        """How many go at once, at most *most*."""

    def wait_s(self, done: int, elapsed_s: float) -> float:
        """Return how long to wait after *done* in *elapsed_s* seconds."""
        return 0.0 if self._per_s is None else max(0.0, done / self._per_s - elapsed_s)
