"""The test kit: a pytest plugin with a server for tests, and assertions about queues of jobs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tambomq.jobs.testing.due import JobRun
    from tambomq.jobs.testing.enqueued import EnqueuedJob, assert_enqueued, assert_not_enqueued
    from tambomq.jobs.testing.trial import RecordedRun, TrialRun

__all__ = [
    "EnqueuedJob",
    "JobRun",
    "RecordedRun",
    "TrialRun",
    "assert_enqueued",
    "assert_not_enqueued",
]

# pytest imports this package in every run; most need none of these.
_LATER = {
    "EnqueuedJob": "enqueued",
    "JobRun": "due",
    "TrialRun": "trial",
    "RecordedRun": "trial",
    "assert_enqueued": "enqueued",
    "assert_not_enqueued": "enqueued",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tambomq.jobs.testing.{_LATER[name]}"), name)
