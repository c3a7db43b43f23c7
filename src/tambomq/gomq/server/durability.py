"""What replies to durable publishes say: the level that was confirmed, or what is known instead."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tambomq.errors import DurabilityUnsupported, NotDurable
from tambomq.gomq.server.auth import DURABLE, Caller

WHY: Final = "x-gomq-durable-why"
"""Metadata of a refusal: why the level was not reached, percent-encoded."""
COPIES: Final = "x-gomq-durable-copies"
"""Metadata of a refusal, if the messages are stored: ``1/2`` for one confirmed copy of two."""


def confirm(caller: Caller) -> None:
    """Say in the metadata of the reply that the level that *caller* asked for is reached."""
    if caller.durable is not None:
        caller.reply[DURABLE] = caller.durable


def trailers(error: Exception) -> tuple[tuple[str, str], ...]:
    """Return the metadata to send with the status of *error*; none for errors of other kinds."""
    if isinstance(error, NotDurable):
        copies = f"{error.acknowledged}/{error.wanted}"
        return (DURABLE, error.level), (WHY, quote(error.why)), (COPIES, copies)
    if isinstance(error, DurabilityUnsupported):
        return (DURABLE, error.level), (WHY, quote(error.why))
    return ()
