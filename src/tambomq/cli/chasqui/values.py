"""How times, durations, backoffs and payloads are written on the command line of ``chasqui``."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from tambomq.chasqui.job import U32, BackoffSpec
from tambomq.chasqui.repeat import MissedFiresPolicy

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))? *(ms|s|m|h|d)?")
_WAITS: Final = {"fixed": 1, "exponential": 2}
"""How many durations a kind of backoff takes at most."""


def duration(text: str) -> int:
    """Return milliseconds: ``250``, ``250ms``, ``10s``, ``5m``, ``1.5h``, ``7d``."""
    if (ms := _milliseconds(text)) is None:
        raise click.BadParameter(f"{text!r} is no duration: write 250 (ms), 10s, 5m, 2h or 7d")
    return ms


def moment(text: str) -> datetime:
    """Return a time in ISO 8601; one without an offset is in UTC."""
    try:
        told = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no ISO 8601 time: write 2030-01-31T09:00:00Z, or +01:00 for Z"
        ) from error
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def backoff(text: str) -> BackoffSpec:
    """Return the backoff: ``5s``, ``exponential:1s``, or ``exponential:1s:10m`` with a limit."""
    kind, colon, rest = text.partition(":")
    kind, rest = (kind, rest) if colon else ("fixed", text)
    waits = [_milliseconds(part) for part in rest.split(":")]
    first, most = waits[0], waits[-1]
    if first is None or most is None or len(waits) > _WAITS.get(kind, 0):
        raise click.BadParameter(
            f"{text!r} is no backoff: write 5s, exponential:1s or exponential:1s:10m"
        )
    return BackoffSpec(kind, first, most if waits[1:] else None)


def missed_fires(text: str) -> MissedFiresPolicy:
    """Return the policy: ``skip``, ``fire-once``, or ``fire-all:100`` with a limit."""
    kind, _, most = text.partition(":")
    if kind == "fire-all" and most.isdecimal() and 0 < int(most) <= U32:
        return MissedFiresPolicy.fire_all(int(most))
    if text not in ("skip", "fire-once"):
        raise click.BadParameter(f"{text!r} is none of skip, fire-once and fire-all:100")
    return MissedFiresPolicy(text)


def payload(text: str | None) -> Any:
    """Return the value that DATA stands for: JSON, ``-`` for JSON on standard input."""
    if text is None:
        return None
    if text == "-":
        if sys.stdin is None:
            raise click.UsageError("there is nothing to read: standard input is closed")
        text = sys.stdin.read()
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(
            f"the data is not JSON: {error}; text is written in quotes: '\"hello\"'"
        ) from error


def with_text_keys(value: Any) -> Any:
    """Return a decoded payload as JSON can hold it: the keys of its maps are text."""
    if isinstance(value, dict):
        return {_key(key): with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_text_keys(item) for item in value]
    if isinstance(value, bytes | str | int | float | None):
        return value
    return str(value)


def _key(key: Any) -> str:
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _milliseconds(text: str) -> int | None:
    if (match := _DURATION.fullmatch(text.strip())) is None:
        return None
    whole, fraction, unit = match.groups()
    size = _UNITS_MS[unit or "ms"]
    return int(whole) * size + int(float(f"0.{fraction or 0}") * size)
