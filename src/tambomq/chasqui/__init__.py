"""ChasquiMQ: a job queue on Redis streams, with delays, retries, schedules and dead letters."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.chasqui.blocking_queue import BlockingQueue
from tambomq.chasqui.job import BackoffSpec, DeadLetter, Job, JobCounts, QueueEvent
from tambomq.chasqui.job_info import HeldJob, JobInfo, WorkerInfo
from tambomq.chasqui.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from tambomq.errors import CancelJob, RetryIn, UnrecoverableError

if TYPE_CHECKING:
    from tambomq.chasqui.events import QueueEvents
    from tambomq.chasqui.queue import Queue
    from tambomq.chasqui.worker.settlement import WorkerStats
    from tambomq.chasqui.worker.worker import Worker

__all__ = [
    "BackoffSpec",
    "BlockingQueue",
    "CancelJob",
    "DeadLetter",
    "HeldJob",
    "Job",
    "JobCounts",
    "JobInfo",
    "MissedFiresPolicy",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "RepeatPattern",
    "RepeatableMeta",
    "RetryIn",
    "UnrecoverableError",
    "Worker",
    "WorkerInfo",
    "WorkerStats",
]

# These import asyncio, which is a third of the start time of a command that does not need it.
_LATER = {
    "Queue": "queue",
    "QueueEvents": "events",
    "Worker": "worker.worker",
    "WorkerStats": "worker.settlement",
}


def __getattr__(name: str) -> Any:
    """Import the names that need asyncio at their first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
