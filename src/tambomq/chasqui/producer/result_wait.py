"""What waiting for a result comes to. No Redis, no clock."""

from __future__ import annotations

from tambomq.chasqui.job import DeadLetter
from tambomq.errors import InvalidValue, JobFailed

LOOK_EVERY_S = 1.0
"""A worker without events is noticed by looking; one with events is heard."""
RESULT_LAG_S = 0.25
"""The engine tells that a job has completed a little before it keeps the result."""
LINGER_S = 2.0
"""For so long one who has nothing to wait for goes on listening: the next to wait is soon here."""
BLOCK_MS = 1000


def check_wait(timeout: float, poll_interval: float) -> None:
    """Raise `InvalidValue` unless both are numbers of seconds to wait."""
    for what, value in (("timeout", timeout), ("poll_interval", poll_interval)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InvalidValue(what, value, "a positive number of seconds")


def failed_job(queue: str, id: str, reason: str, letter: DeadLetter | None) -> JobFailed:
    """Return the error that tells that a job is dead, with what its *letter* says."""
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
