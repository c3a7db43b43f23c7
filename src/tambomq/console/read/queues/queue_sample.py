"""The numbers of one queue at one moment, as all protocols give them."""

from __future__ import annotations

import msgspec

from tambomq.console.read.queues.event_times import TimeBuckets


class QueueSample(msgspec.Struct, frozen=True, kw_only=True):
    """What one refresh knows of a queue; `None` does not apply or is not known.

    ``entered``, ``left``, ``failed`` and ``died`` only grow, unless the queue is deleted: rates are
    made of them.
    """

    depth: int
    visible: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    oldest_s: float | None = None
    overdue_s: float | None = None
    """How long the first delayed job has been due without being promoted."""
    entered: int | None = None
    left: int | None = None
    received: int | None = None
    """Receives, repeated ones included."""
    failed: int | None = None
    failed_per_s: float | None = None
    died: int | None = None
    paused: bool = False
    workers: int | None = None
    """Workers, peers or consumers that are alive."""
    copies: int = 1
    """How many consumers a message goes to, each of which has to take it."""
    runs: int = 0
    """Runs that ended among the last events that were looked at."""
    failed_runs: int = 0
    run_times: TimeBuckets | None = None
    """How long runs took, since the first look."""
    wait_times: TimeBuckets | None = None
    """How long jobs could have run before they did, since the first look."""
    silent_peer: tuple[str, float] | None = None
    """The peer that has not observed for longest, and for how many seconds."""
    slow_consumer: tuple[str, int, int] | None = None
    """The address of the consumer furthest behind, the bytes in its buffer, and their limit."""
    recurring: int = 0
    damaged: int = 0
    """How many of its keys cannot be read."""
    events_seen: int = 0
    """Events ever written."""
