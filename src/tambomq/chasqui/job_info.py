"""What is known of one job, and of one worker. Values: no bytes, no clock, no Redis."""

from __future__ import annotations

from typing import Any

import msgspec

DELAYED, WAITING, ACTIVE, DEAD, COMPLETED = "delayed", "waiting", "active", "dead", "completed"


class JobInfo(msgspec.Struct, frozen=True):
    """A job and where it is. What is not known, or means nothing in its state, is `None`."""

    id: str
    state: str
    """``delayed``, ``waiting``, ``active``, ``completed`` or ``dead``."""
    name: str | None = None
    data: Any = None
    attempts_made: int | None = None
    """Runs it has had before this one."""
    created_at_ms: int | None = None
    progress: int | None = None
    """How far it has come, 0 to 100."""
    due_at_ms: int | None = None
    """When it is to run, while it is delayed: for the first time, or again."""
    worker: str | None = None
    """Who has it, while it is active."""
    result: Any = None
    """What its handler returned, while that is kept."""
    dlq_id: str | None = None
    """Its place among the dead letters."""
    reason: str | None = None
    """Why it is dead."""
    error_type: str | None = None
    detail: str | None = None
    traceback: str | None = None


class HeldJob(msgspec.Struct, frozen=True):
    """A job that a worker has: it runs, or is the next to."""

    id: str
    name: str
    entry_id: str
    """Its place in the stream."""
    deliveries: int
    """How often it was given to a worker, this time included."""
    idle_ms: int
    """How long ago its worker took or renewed it."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker of a queue's group."""

    name: str
    """Its consumer id."""
    held: int
    """How many jobs it has."""
    idle_ms: int
    """How long ago it last read."""
    jobs: list[HeldJob]
    """The oldest of those it has."""
