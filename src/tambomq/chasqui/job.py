"""Value types of jobs, dead letters, events and counts, with their checks. No Redis, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.failures import headline

MAX_ATTEMPTS = 25
MAX_DELAY_S = 30 * 24 * 3600
U32 = 2**32 - 1
U64 = 2**64 - 1

RETRIES_EXHAUSTED, UNRECOVERABLE = "retries_exhausted", "unrecoverable"
DECODE_FAILED, MALFORMED = "decode_failed", "malformed"
OVERSIZE_PAYLOAD = "oversize_payload"


class BackoffSpec(msgspec.Struct, frozen=True):
    """The delay before each retry of a failed job. `None` means the queue's default."""

    kind: str
    """``fixed`` or ``exponential``; any other stored kind is treated as exponential."""
    delay_ms: int
    max_delay_ms: int | None = None
    multiplier: float | None = None
    jitter_ms: int | None = None

    @staticmethod
    def fixed(delay_ms: int, jitter_ms: int | None = None) -> BackoffSpec:
        """Always *delay_ms*."""
        return BackoffSpec("fixed", delay_ms, jitter_ms=jitter_ms)

    @staticmethod
    def exponential(
        initial_ms: int,
        *,
        multiplier: float = 2.0,
        max_ms: int | None = None,
        jitter_ms: int | None = None,
    ) -> BackoffSpec:
        """*initial_ms*, then *multiplier* times as long for each further retry."""
        return BackoffSpec("exponential", initial_ms, max_ms, multiplier, jitter_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}


BackoffLike: TypeAlias = int | BackoffSpec | dict[str, Any]
"""A number is a fixed delay in milliseconds."""


def backoff_spec(backoff: BackoffLike) -> BackoffSpec:
    """Return *backoff* as a spec; raise `InvalidFormat` or `InvalidValue`."""
    if isinstance(backoff, dict):
        try:
            backoff = BackoffSpec(**backoff)
        except TypeError as error:
            raise InvalidFormat("backoff", backoff, str(error)) from None
    elif isinstance(backoff, int) and not isinstance(backoff, bool):
        backoff = BackoffSpec("fixed", backoff)
    if not isinstance(backoff, BackoffSpec):
        raise InvalidFormat("backoff", backoff, "milliseconds, a BackoffSpec or a dict")
    if backoff.kind not in ("fixed", "exponential"):
        raise InvalidFormat("backoff kind", backoff.kind, "fixed or exponential")
    check_whole("delay_ms", backoff.delay_ms, U64)
    for name in ("max_delay_ms", "jitter_ms"):
        if (value := getattr(backoff, name)) is not None:
            check_whole(name, value, U64)
    factor = backoff.multiplier
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
        raise InvalidValue("multiplier", factor, "a number")
    return backoff


class RetryOverride(msgspec.Struct, frozen=True):
    """Retry options of a single job. `None` means the worker's default."""

    max_attempts: int | None = None
    backoff: BackoffSpec | None = None


def retry_override(attempts: int | None, backoff: BackoffLike | None) -> RetryOverride | None:
    """Return a producer's retry options as an override; `None` if there are none."""
    if attempts is None and backoff is None:
        return None
    if attempts is not None:
        check_whole("attempts", attempts, U32)
    return RetryOverride(attempts, None if backoff is None else backoff_spec(backoff))


class Envelope(msgspec.Struct, gc=False):
    """A job as it is stored, without its dispatch name, which is a stream field of its own."""

    id: str
    payload: bytes
    """The user's data, as MessagePack."""
    created_at_ms: int
    attempt: int = 0
    """Runs so far."""
    retry: RetryOverride | None = None


class _JobType(msgspec.StructMeta):
    """Accepts *attempt*, the number of earlier runs, as the engine's constructor does."""

    def __call__(self, *args: Any, attempt: int | None = None, **fields: Any) -> Any:
        if attempt is not None:
            if len(args) > 3 or "attempts_made" in fields:  # noqa: PLR2004  (id, name and data)
                raise InvalidValue("attempt", attempt, "left out where attempts_made is given")
            fields["attempts_made"] = check_whole("attempt", attempt, U32)
        return super().__call__(*args, **fields)


class Job(msgspec.Struct, eq=False, metaclass=_JobType):
    """A job, as `Queue.add` returns it and as a handler receives it.

    Tests of handlers may construct one, with *attempts_made* or, as with the engine, *attempt*:
    both are the number of earlier runs.
    """

    id: str
    name: str
    data: Any
    attempts_made: int
    """Earlier runs: 0 the first time."""
    created_at_ms: int
    _owner: Any = None
    """The queue or worker it belongs to."""
    added: bool | None = None
    """Whether `add_unique` added it; `None` after other calls, and for a repeatable job."""
    _entry: str = ""  # its stream entry, while a handler has it

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,
            name: str,
            data: Any,
            attempts_made: int = ...,
            created_at_ms: int = ...,
            _owner: Any = ...,
            *,
            attempt: int | None = ...,
        ) -> None:
            """Declare the arguments that `_JobType` accepts."""

    @property
    def attempt(self) -> int:
        """The number of this run, from 1."""
        return self.attempts_made + 1

    def wait_for_result(self, *, timeout: float = 30.0, poll_interval: float = 0.1) -> Any:
        """Wait for the handler's result and return it. Await it on a job of `Queue`.

        Raises `JobFailed`, `JobCancelled`, and `TimeoutError` after *timeout* seconds.
        Needs a worker with ``store_results=True`` and a handler that returns a value.
        """
        wait = self._ability("wait_for_result", "a job returned by Queue.add")
        return wait(self.id, timeout=timeout, poll_interval=poll_interval)

    def update_progress(self, value: Any) -> Any:
        """Report the job's progress: 0 to 100, or any small value. Await it in an async handler."""
        report = self._ability("update_progress", "a job given to a handler")
        return report(self.id, value, self.name)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled while it runs: then a plain function should return."""
        return bool(self._entry) and bool(self._owner.is_cancelled(self._entry))

    def log(self, line: str) -> Any:
        """Append a line to the job's log. Await it in an async handler."""
        return self._ability("log", "a job given to a handler")(self.id, line)

    def _ability(self, what: str, whose: str) -> Callable[..., Any]:
        ability: Callable[..., Any] | None = getattr(self._owner, what, None)
        if ability is None:
            raise RuntimeError(f"{what} needs {whose}")
        return ability

    def _values(self) -> tuple[Any, ...]:
        return (self.id, self.name, self.data, self.attempts_made, self.created_at_ms)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Job) else NotImplemented

    # A job is mutable, and its data may be unhashable.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Job(id={!r}, name={!r}, data={!r}, attempts_made={}, created_at_ms={})".format(
            *self._values()
        )


make_job: Callable[..., Job] = partial(msgspec.StructMeta.__call__, Job)
"""Makes a job of its fields, in their order: six times as fast as ``Job(…)``."""


_ENGINE_FIELDS: Final = 6
"""The first fields of a dead letter are those that the engine has too."""


class DeadLetter(msgspec.Struct, frozen=True):
    """An entry of the dead-letter queue. ``letter["reason"]`` reads a field as well.

    As a mapping it lists only the engine's fields, so that programs written for it keep working.
    """

    dlq_id: str
    source_id: str
    reason: str
    detail: str | None
    """The text of the handler's error, or what is wrong with the job."""
    payload: bytes
    """The stored envelope, or the bytes that were stored in its place."""
    name: str
    error_type: str | None = None
    """The type of the handler's error; `None` if it was not stored."""
    traceback: str | None = None
    """The traceback of the handler's error, truncated; `None` if it was not stored."""

    @property
    def error(self) -> str:
        """Type and text of the handler's error: ``KeyError: 'to'``; empty if not stored."""
        return headline(self.error_type, self.detail)

    def __getitem__(self, field: str) -> Any:
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the engine's fields."""
        return self.__struct_fields__[:_ENGINE_FIELDS]

    def values(self) -> tuple[Any, ...]:
        """Return the values of the engine's fields, in the same order."""
        return msgspec.structs.astuple(self)[:_ENGINE_FIELDS]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return names and values of the engine's fields."""
        return zip(self.keys(), self.values(), strict=True)

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of *field*, or *default* if there is no such field."""
        return getattr(self, field) if field in self.__struct_fields__ else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return _ENGINE_FIELDS


class QueueEvent(msgspec.Struct, frozen=True):
    """An entry of a queue's events stream."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, Any]
    """All other fields; attempts, counts and times as numbers."""
    event_id: str = ""
    """Its id in the events stream."""


class JobCounts(msgspec.Struct, frozen=True):
    """The number of a queue's jobs in each state."""

    waiting: int
    active: int
    delayed: int
    dead: int
    repeatable: int
    oldest_delayed_lag_ms: int | None
    """How overdue the first delayed job is, 0 if it is not due; `None` if there is none."""
    paused: bool
    has_group: bool
    """Whether the consumer group exists: the first consumer creates it."""


def check_whole(what: str, value: int, maximum: int, minimum: int = 0) -> int:
    """Return *value* if it is a whole number in its range; raise `InvalidValue` if not."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(what, value, "a whole number")
    if value < 0 <= minimum:
        raise InvalidValue(what, value, "non-negative")
    if not minimum <= value <= maximum:
        raise InvalidValue(what, value, f"between {minimum} and {maximum}")
    return value
