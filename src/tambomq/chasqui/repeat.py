"""Value types of repeatable jobs: their pattern, and the policy for missed fires. No Redis."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tambomq.chasqui.job import U32, U64, BackoffSpec, RetryOverride, check_whole
from tambomq.errors import InvalidFormat


class RepeatPattern(msgspec.Struct, frozen=True):
    """The times at which a job fires; made by `cron` or `every`."""

    kind: str
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    @staticmethod
    def cron(expression: str, *, tz: str | None = None) -> RepeatPattern:
        """Fire when *expression* matches the wall clock in the time zone *tz*."""
        return RepeatPattern("cron", expression, tz)

    @staticmethod
    def every(interval_ms: int) -> RepeatPattern:
        """Fire every *interval_ms*, for the first time after one interval."""
        return RepeatPattern("every", interval_ms=interval_ms)

    @property
    def signature(self) -> str:
        """The part of a default spec key that differs between patterns of one job name."""
        if self.kind == "every":
            return f"every:{self.interval_ms}"
        return f"cron:{self.expression}:{'UTC' if self.tz is None else self.tz}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return _set_fields(self)


RepeatLike: TypeAlias = RepeatPattern | dict[str, Any]


class MissedFiresPolicy(msgspec.Struct, frozen=True):
    """The policy for fires that were missed; made by `skip`, `fire_once` or `fire_all`."""

    kind: str
    max_catchup: int | None = None

    @staticmethod
    def skip() -> MissedFiresPolicy:
        """Add no job for missed fires."""
        return MissedFiresPolicy("skip")

    @staticmethod
    def fire_once() -> MissedFiresPolicy:
        """Add one job for all missed fires together."""
        return MissedFiresPolicy("fire-once")

    @staticmethod
    def fire_all(max_catchup: int) -> MissedFiresPolicy:
        """Add one job per missed fire, at most *max_catchup*."""
        return missed_fires(MissedFiresPolicy("fire-all", max_catchup))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return _set_fields(self)


MissedFiresLike: TypeAlias = MissedFiresPolicy | dict[str, Any]
SKIP = MissedFiresPolicy.skip()


class RepeatSpec(msgspec.Struct, frozen=True):
    """A repeatable job, as it is stored."""

    key: str
    job_name: str
    pattern: RepeatPattern
    payload: bytes
    """The user's data, as MessagePack."""
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy = SKIP
    retry: RetryOverride | None = None
    unless_queued: bool = False
    """Whether a fire is skipped while the job of the last one is in the queue.

    It is not part of the stored spec: the released engine could not read that.
    """


class RepeatableMeta(msgspec.Struct, frozen=True):
    """A repeatable job, as it is listed."""

    key: str
    job_name: str
    pattern: RepeatPattern
    next_fire_ms: int
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy | None = None
    """`None` where missed fires are skipped."""
    fired: int = 0
    unless_queued: bool = False
    attempts: int | None = None
    """Runs of each job at most; `None` leaves it to the worker."""
    backoff: BackoffSpec | None = None
    """Before each retry; `None` leaves it to the worker."""


def spec_key(key: str | None, job_name: str, pattern: RepeatPattern) -> str:
    """Return the key of a spec: the caller's own, or one made of job name and pattern."""
    return key or f"{job_name}::{pattern.signature}"


def repeat_pattern(repeat: RepeatLike) -> RepeatPattern:
    """Return *repeat* as a pattern; raise `InvalidFormat` or `InvalidValue`."""
    pattern: RepeatPattern = _made(RepeatPattern, "repeat", repeat)
    if pattern.kind == "every":
        check_whole("interval_ms", pattern.interval_ms or 0, U64, minimum=1)
    elif pattern.kind == "cron":
        if not isinstance(pattern.expression, str):
            raise InvalidFormat("cron expression", pattern.expression, "text of 5 to 7 fields")
    else:
        raise InvalidFormat("pattern kind", pattern.kind, "cron or every")
    return pattern


def missed_fires(policy: MissedFiresLike) -> MissedFiresPolicy:
    """Return *policy* as a `MissedFiresPolicy`; raise `InvalidFormat` or `InvalidValue`."""
    made: MissedFiresPolicy = _made(MissedFiresPolicy, "missed_fires", policy)
    if made.kind == "fire-all":
        check_whole("max_catchup", made.max_catchup or 0, U32, minimum=1)
    elif made.kind not in ("skip", "fire-once"):
        raise InvalidFormat("missed-fires kind", made.kind, "skip, fire-once or fire-all")
    return made


def _made(kind: Any, what: str, value: Any) -> Any:
    if isinstance(value, dict):
        try:
            return kind(**value)
        except TypeError as error:
            raise InvalidFormat(what, value, str(error)) from None
    if not isinstance(value, kind):
        raise InvalidFormat(what, value, f"a {kind.__name__} or a dict")
    return value


def _set_fields(value: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.structs.asdict(value)
    return {name: item for name, item in fields.items() if item is not None}
