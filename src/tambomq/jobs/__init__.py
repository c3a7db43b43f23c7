"""Typed jobs on ChasquiMQ queues: a decorator makes a function a job, a worker runs it."""

from tambomq.chasqui.job import BackoffSpec
from tambomq.errors import CancelJob, RetryIn, UnrecoverableError
from tambomq.jobs.context import Context
from tambomq.jobs.function import BoundJob, JobCall, JobFunction
from tambomq.jobs.handle import JobHandle
from tambomq.jobs.jobs import Jobs
from tambomq.jobs.signature import INJECTED
from tambomq.jobs.worker import JobsWorker

__all__ = [
    "INJECTED",
    "BackoffSpec",
    "BoundJob",
    "CancelJob",
    "Context",
    "JobCall",
    "JobFunction",
    "JobHandle",
    "Jobs",
    "JobsWorker",
    "RetryIn",
    "UnrecoverableError",
]
