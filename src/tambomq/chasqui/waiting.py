"""What waiting for a result comes to. No Redis, no clock."""

from __future__ import annotations

from tambomq.chasqui.job import QueueEvent
from tambomq.errors import InvalidValue, JobFailed

LOOK_EVERY_S = 1.0
"""A worker without events is noticed by looking; one with events is heard."""
RESULT_LAG_S = 0.25
"""The engine tells that a job has completed a little before it keeps the result."""
BLOCK_MS = 1000


def check_wait(timeout: float, poll_interval: float) -> None:
    """Raise `InvalidValue` unless both are numbers of seconds to wait."""
    for what, value in (("timeout", timeout), ("poll_interval", poll_interval)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidValue(what, value, "a positive number of seconds")


def verdict(queue: str, event: QueueEvent) -> JobFailed | None:
    """Return what *event* means to who waits for its job; `None`: there may be a result."""
    if event.name == "dlq":
        return JobFailed(queue, event.job_id or "", str(event.fields.get("reason", "")))
    return None
