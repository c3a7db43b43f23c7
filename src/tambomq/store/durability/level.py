"""The levels of durability: ``memory``, ``disk`` and ``replicas:N``, and the command that waits."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tambomq.errors import InvalidFormat, InvalidValue

MEMORY: Final = "memory"
"""A send is done when the server has it in memory. Costs nothing."""
DISK: Final = "disk"
"""A send is done when the append-only file on the server's disk has it."""
TIMEOUT_S: Final = 5.0
"""The disk has a write within two seconds with ``appendfsync everysec``, unless it is slow."""
RULE: Final = "memory, disk, or replicas:N with N from 1 to 99"

_MAX_TIMEOUT_S: Final = 3600.0
_REPLICAS: Final = re.compile(r"replicas:([1-9][0-9]?)")


class Durability(msgspec.Struct, frozen=True):
    """A level above memory: what the server must confirm, and for how long to wait."""

    level: str
    replicas: int
    """How many replicas must have a write; 0 means the server's own disk."""
    timeout_s: float = TIMEOUT_S

    @property
    def wanted(self) -> int:
        """How many copies must be confirmed."""
        return self.replicas or 1

    def command(self, timeout_s: float) -> tuple[str | int, ...]:
        """Return the command that waits up to *timeout_s* for the writes of its connection."""
        limit_ms = max(1, round(timeout_s * 1000))
        if self.replicas:
            return ("WAIT", self.replicas, limit_ms)
        return ("WAITAOF", 1, 0, limit_ms)


def durability(level: str, timeout_s: float = TIMEOUT_S) -> Durability | None:
    """Parse *level*; `None` for memory. Raises `InvalidFormat` and `InvalidValue`."""
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= _MAX_TIMEOUT_S:
        rule = f"more than 0 and at most {_MAX_TIMEOUT_S:g} seconds"
        raise InvalidValue("durable_timeout_s", timeout_s, rule)
    if level == MEMORY:
        return None
    if level == DISK:
        return Durability(DISK, 0, timeout_s)
    match = _REPLICAS.fullmatch(level) if isinstance(level, str) else None
    if match is None:
        raise InvalidFormat("durable", level, RULE)
    return Durability(level, int(match[1]), timeout_s)
