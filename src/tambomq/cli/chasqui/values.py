"""Values on the command line of ``chasqui``: times, backoffs, policies and payloads.

Durations are those of `tambomq.cli.durations`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, Final

import click

from tambomq.chasqui.job import U32, BackoffSpec
from tambomq.chasqui.repeat import MissedFiresPolicy
from tambomq.cli.durations import milliseconds

_DELAYS: Final = {"fixed": 1, "exponential": 2}
"""The number of durations that a kind of backoff takes at most."""


def moment(text: str) -> datetime:
    """Return a time in ISO 8601; one without an offset is in UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no ISO 8601 time: write 2030-01-31T09:00:00Z, or +01:00 for Z"
        ) from error
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def backoff(text: str) -> BackoffSpec:
    """Return the backoff: ``5s``, ``exponential:1s``, or ``exponential:1s:10m`` with a limit."""
    kind, colon, rest = text.partition(":")
    kind, rest = (kind, rest) if colon else ("fixed", text)
    parts = rest.split(":")
    if len(parts) > _DELAYS.get(kind, 0):
        raise click.BadParameter(_not_a_backoff(text))
    try:
        delay_ms, *max_delay_ms = map(milliseconds, parts)
    except click.BadParameter as error:
        raise click.BadParameter(_not_a_backoff(text)) from error
    return BackoffSpec(kind, delay_ms, *max_delay_ms)


def _not_a_backoff(text: str) -> str:
    return f"{text!r} is not a backoff: write 5s, exponential:1s or exponential:1s:10m"


def missed_fires(text: str) -> MissedFiresPolicy:
    """Return the policy: ``skip``, ``fire-once``, or ``fire-all:100`` with a limit."""
    kind, _, max_fires = text.partition(":")
    if kind == "fire-all" and max_fires.isdecimal() and 0 < int(max_fires) <= U32:
        return MissedFiresPolicy.fire_all(int(max_fires))
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
