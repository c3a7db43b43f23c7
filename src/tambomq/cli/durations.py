"""Durations on the command line. Every option of every command that takes one reads it here.

A plain number is seconds. Units are ``ms``, ``s``, ``m``, ``h`` and ``d``, and a number may have a
fraction: ``90``, ``500ms``, ``1.5h``, ``7d``. The functions are click types: they raise
`click.BadParameter`, to which click adds the name of the option.

Two kinds of options keep what their users know from another tool: those of ``rsmqctl``, which are
whole seconds, and ``chasqui watch --interval-ms``, which has its unit in its name.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import click

METAVAR: Final = "DURATION"

_UNITS_S: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}
_DURATION: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) *(ms|s|m|h|d)?")
_MAX_S: Final = Decimal(86_400 * 36_500)
"""A century: far more than anyone waits for, far less than what overflows a timer."""


def milliseconds(text: str) -> int:
    """Return whole milliseconds; what is less than one is cut off."""
    return int(_exact_seconds(text) * 1000)


def seconds(text: str) -> float:
    """Return seconds."""
    return float(_exact_seconds(text))


def positive_seconds(text: str) -> float:
    """Return seconds, more than none."""
    if not (found := seconds(text)):
        raise click.BadParameter(f"{text!r} is no time at all: write 500ms, 10s or 5m")
    return found


def whole_seconds(text: str) -> int:
    """Return seconds, for what is stored as a whole number of them."""
    found = _exact_seconds(text)
    if found != int(found):
        raise click.BadParameter(f"{text!r} is not a whole number of seconds: write 30 or 5m")
    return int(found)


def whole_seconds_or_unlimited(text: str) -> int:
    """Return seconds like `whole_seconds`, or -1 for ``-1``, which is no limit."""
    return -1 if text == "-1" else whole_seconds(text)


def whole_days(text: str) -> int:
    """Return days, one or more."""
    days, rest = divmod(_exact_seconds(text), _UNITS_S["d"])
    if rest or not days:
        raise click.BadParameter(f"{text!r} is not a whole number of days: write 30d")
    return int(days)


def _exact_seconds(text: str) -> Decimal:
    if (match := _DURATION.fullmatch(text.strip())) is None:
        raise click.BadParameter(
            f"{text!r} is not a duration: write a number of seconds, "
            "or a number with ms, s, m, h or d, such as 500ms, 10s, 5m, 2h or 7d"
        )
    number, unit = match.groups()
    if (found := Decimal(number) * _UNITS_S[unit or "s"]) > _MAX_S:
        raise click.BadParameter(f"{text!r} is more than a century, {_MAX_S // 86_400}d")
    return found
