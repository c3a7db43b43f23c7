"""Checked options of typed jobs: those of a function, and those of one add."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from tambomq.chasqui.job import U32, BackoffLike, backoff_spec, check_whole
from tambomq.errors import InvalidFormat, InvalidValue

MAX_TIMEOUT_S = 7 * 24 * 3600.0


class FunctionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of one function run."""

    attempts: int | None = None
    """Runs at most; `None` leaves it to the worker."""
    timeout_s: float | None = None
    backoff: BackoffLike | None = None
    retry_on: tuple[type[BaseException], ...] | None = None
    """Errors after which it runs again; `None` means all."""
    process: bool = False

    def __post_init__(self) -> None:
        if self.attempts is not None:
            check_whole("attempts", self.attempts, U32, minimum=1)
        if self.timeout_s is not None:
            check_seconds("timeout_s", self.timeout_s)
        if self.backoff is not None:
            backoff_spec(self.backoff)
        if self.retry_on is not None and not isinstance(self.retry_on, tuple | list):
            raise InvalidFormat("retry_on", self.retry_on, "a tuple of exception classes")
        for each in self.retry_on or ():
            if not (isinstance(each, type) and issubclass(each, BaseException)):
                raise InvalidFormat("retry_on", each, "exception classes")


class AddOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one job is added."""

    delay_s: float | None = None
    job_id: str | None = None
    attempts: int | None = None
    backoff: BackoffLike | None = None
    debounce_s: float | None = None
    throttle_s: float | None = None

    def __post_init__(self) -> None:
        if self.delay_s is not None:
            check_delay(self.delay_s)
        if self.debounce_s is not None and self.throttle_s is not None:
            raise InvalidValue("throttle_s", self.throttle_s, "left out where debounce_s is given")
        for name in ("debounce_s", "throttle_s"):
            if (seconds := getattr(self, name)) is None:
                continue
            if self.delay_s is not None:
                raise InvalidValue("delay_s", self.delay_s, f"left out where {name} is given")
            check_seconds(name, seconds)
            if self.job_id is None:
                raise InvalidFormat("job_id", None, f"needed with {name}: it says what is the same")

    def for_queue(self) -> dict[str, Any]:
        """Return the options of `Queue.add`, or of `Queue.add_unique` if there is a job id."""
        given: dict[str, Any] = {
            "delay_ms": None if self.delay_s is None else self.delay_s * 1000,
            "job_id": self.job_id,
            "attempts": self.attempts,
            "backoff": self.backoff,
            "debounce_s": self.debounce_s,
            "throttle_s": self.throttle_s,
        }
        return {name: value for name, value in given.items() if value is not None}


def check_delay(delay_s: float) -> None:
    """Raise `InvalidValue` if *delay_s* is no time from now."""
    if isinstance(delay_s, bool) or not isinstance(delay_s, int | float):
        raise InvalidValue("delay_s", delay_s, "a number of seconds")
    if not 0 <= delay_s < inf:
        raise InvalidValue("delay_s", delay_s, "finite, 0 or more")


def check_seconds(what: str, seconds: float) -> float:
    """Return *seconds* if it is a positive number; raise `InvalidValue` if not."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidValue(what, seconds, "a number")
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidValue(what, seconds, f"more than 0 and at most {MAX_TIMEOUT_S:g}")
    return seconds
