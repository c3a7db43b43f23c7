"""Constants and errors of waiting for a job's result. No Redis, no clock."""

from __future__ import annotations

from tambomq.chasqui.job import DeadLetter
from tambomq.errors import InvalidValue, JobFailed

POLL_EVERY_S = 1.0
"""How often to read the result itself: some workers write no events."""
RESULT_LAG_S = 0.25
"""The engine writes the event that a job completed a little before it stores the result."""
LINGER_S = 2.0
"""Keep reading events for so long after the last wait: the next one often comes soon."""
BLOCK_MS = 1000


def check_wait(timeout: float, poll_interval: float) -> None:
    """Raise `InvalidValue` unless both are numbers of seconds to wait."""
    for what, value in (("timeout", timeout), ("poll_interval", poll_interval)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidValue(what, value, "a positive number of seconds")


def failed_job(queue: str, id: str, reason: str, letter: DeadLetter | None) -> JobFailed:
    """Return the error for a dead job, with the details of its dead *letter*."""
    if letter is None:
        return JobFailed(queue, id, reason)
    return JobFailed(
        queue,
        id,
        reason,
        error_type=letter.error_type or "",
        detail=letter.detail or "",
        traceback=letter.traceback or "",
    )
