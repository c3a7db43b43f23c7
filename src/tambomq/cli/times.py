"""Timestamps of commands: ISO 8601, UTC, milliseconds. No other file formats them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc(epoch_ms: float) -> str:
    """Return the time in UTC: ``2030-01-31T09:00:00.000Z``; options that take a time read it."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):  # not a valid timestamp
        return str(epoch_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
