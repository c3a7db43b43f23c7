"""What all RSMQ scripts answer alike.

Nil: there is no such queue. A string: what is wrong with the one there is.
"""

from __future__ import annotations

from typing import TypeVar

from tambomq.errors import QueueCorrupt, QueueNotFound

T = TypeVar("T")


def existing(queue: str, reply: T | None) -> T:
    """Return the reply of a script; raise `QueueNotFound` or `QueueCorrupt` if that is what it says."""
    if reply is None:
        raise QueueNotFound(queue)
    if isinstance(reply, bytes):
        raise QueueCorrupt(queue, reply.decode("utf-8", "replace"))
    return reply
