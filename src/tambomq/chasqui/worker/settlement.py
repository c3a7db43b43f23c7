"""The calls that the settler sends, with the entries that each settles, and its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from tambomq.store.call import Call


class WorkerStats(msgspec.Struct):
    """Counters of a worker since it was created."""

    received: int = 0
    completed: int = 0
    failed: int = 0
    """Runs whose handler raised."""
    retried: int = 0
    buried: int = 0
    """Moved to the dead-letter queue."""
    cancelled: int = 0
    """Ended by `CancelJob`, or by `Queue.cancel_job` while they were here."""
    returned: int = 0
    """Jobs given back to the queue: not begun, or cancelled when the worker ended. (A job whose
    handler returned is counted in `completed`.)"""
    lost: int = 0
    """Finished here, but not settled: no longer pending for this worker in Redis, since another
    worker had claimed or settled them, or they were deleted; or Redis could not do it, which is
    logged. Also those that this worker settled by a call whose reply was lost with the connection:
    Redis replies the same then."""


class CompletedJobs(msgspec.Struct, frozen=True):
    """Jobs that only completed: one call, `worker_ops.settle`, acknowledges all of them.

    The same call writes the events of jobs that start, so there may be no entries.
    """

    call: Call[list[str]]
    entries: list[str]


class Settlement(msgspec.Struct, frozen=True):
    """A job that needs a call of its own to be settled: to keep a result, to retry, to bury."""

    entry: str
    call: Call[Any]
    counter: str
    """The field of `WorkerStats` to increment on success."""
    fallback: Callable[[], Call[Any]] | None = None
    """Makes the call to send instead if the server answers this one with a text, the reason why
    it has done nothing."""
    on_done: Callable[[], None] | None = None
    """Called when the server has done it."""

    @property
    def entries(self) -> list[str]:
        """The entry, as `CompletedJobs` have several."""
        return [self.entry]


Unsettled: TypeAlias = CompletedJobs | Settlement
