"""Value types that describe one job and one worker to operators. No Redis, no clock."""

from __future__ import annotations

from typing import Any

import msgspec

DELAYED, WAITING, ACTIVE, DEAD, COMPLETED = "delayed", "waiting", "active", "dead", "completed"


class JobInfo(msgspec.Struct, frozen=True):
    """A job and its state. Fields that are unknown, or mean nothing in its state, are `None`."""

    id: str
    state: str
    """``delayed``, ``waiting``, ``active``, ``completed`` or ``dead``."""
    name: str | None = None
    data: Any = None
    attempts_made: int | None = None
    """Earlier runs."""
    created_at_ms: int | None = None
    progress: Any = None
    """Its progress: 0 to 100, or what else its handler reported."""
    due_at_ms: int | None = None
    """When a delayed job is due: its first run, or a retry."""
    worker: str | None = None
    """The consumer that runs it, while it is active."""
    result: Any = None
    """The handler's result, while it is kept."""
    dlq_id: str | None = None
    """Its id in the dead-letter queue."""
    reason: str | None = None
    """Why it is dead."""
    error_type: str | None = None
    detail: str | None = None
    traceback: str | None = None


class HeldJob(msgspec.Struct, frozen=True):
    """A job that is pending for a worker: running, or prefetched."""

    id: str
    name: str
    entry_id: str
    """Its id in the stream."""
    deliveries: int
    """The number of its deliveries, this one included."""
    idle_ms: int
    """Time since its worker fetched or renewed it."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker of a queue's consumer group."""

    name: str
    """Its consumer id."""
    held: int
    """The number of its pending jobs."""
    idle_ms: int
    """Time since it last read the stream."""
    jobs: list[HeldJob]
    """The oldest of its pending jobs."""
