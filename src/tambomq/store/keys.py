"""Keys that belong to no protocol. No other file spells one."""

from __future__ import annotations

from typing import Final

PROBE: Final = "tambo:probe"
"""String that expires after a few seconds: written to check that the server takes writes."""

_BARRIER: Final = ":tambo:barrier"


def barrier(key: str) -> str:
    """Return the key that a durable write of *key* sets and deletes: in the same cluster slot."""
    return key + _BARRIER
