"""What all RSMQ scripts answer alike.

Nil: there is no such queue. A string: what is wrong with the one there is.
"""

from __future__ import annotations

from typing import TypeVar

from tambomq.errors import QueueCorrupt, QueueNotFound

T = TypeVar("T")

# Beyond this a float, and so a score, no longer tells one integer from the next.
_FOREVER = 2**53


def existing(queue: str, reply: T | None) -> T:
    """Return the reply of a script; raise `QueueNotFound` or `QueueCorrupt` if it says so."""
    if reply is None:
        raise QueueNotFound(queue)
    if isinstance(reply, bytes):
        raise QueueCorrupt(queue, reply.decode("utf-8", "replace"))
    return reply


def moment(score: bytes) -> int:
    """Return the millisecond a score stands for; what no clock shows becomes 2**53 either way."""
    return int(max(-_FOREVER, min(float(score), _FOREVER)))


def tally(value: bytes | None) -> int:
    """Return a count kept with a message; 0 if there is none, or it is no number."""
    return int(value) if value and value.isdigit() else 0
