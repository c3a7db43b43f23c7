"""The journal: an append-only record of the messages that pass through a queue."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.journal.policy import JournalBounds

if TYPE_CHECKING:
    from tambomq.journal.reader import JournalReader

__all__ = ["JournalBounds", "JournalReader"]

# Operations import this package too, and need no connection to Redis.
_LATER = {"JournalReader": "reader"}


def __getattr__(name: str) -> Any:
    """Import what connects to Redis when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
