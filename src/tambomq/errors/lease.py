"""A query cannot have, keep or read what it holds of a queue."""

from __future__ import annotations

from tambomq.errors.queue import QueueError


class LeaseTaken(QueueError):
    """Another query has the lease, and is alive."""

    def __init__(self, queue: str, lease: str, holder: str) -> None:
        told = f"lease {lease!r} on queue {queue!r} is held by {holder}, which is alive"
        super().__init__(queue, f"{told}: stop that query, or name another lease")
        self.lease, self.holder = lease, holder


class LeaseLost(QueueError):
    """A query was thought dead and replaced, or its lease was given up."""

    def __init__(self, queue: str, lease: str, why: str) -> None:
        told = f"lease {lease!r} on queue {queue!r} is lost: {why}"
        super().__init__(queue, f"{told}; this query changes nothing any more")
        self.lease = lease


class EntriesLost(QueueError):
    """What a query was to read is gone, or others have had it."""
