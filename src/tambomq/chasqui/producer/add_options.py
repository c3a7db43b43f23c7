"""Options of `Queue.add`: which of them exclude each other, and when the job is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tambomq.chasqui.job import U64, BackoffLike, check_whole, retry_override
from tambomq.chasqui.keys import check_job_id, check_name
from tambomq.chasqui.ops.debounce import whole_ms
from tambomq.chasqui.repeat import (
    SKIP,
    MissedFiresLike,
    RepeatLike,
    RepeatSpec,
    missed_fires,
    repeat_pattern,
    spec_key,
)
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import InvalidFormat, InvalidValue


def check_together(repeat: Any, missed_fires: object, *delays: object) -> Any:
    """Return *repeat*; raise `InvalidFormat` for options of `add` that exclude each other."""
    if repeat is None and missed_fires is not None:
        raise InvalidFormat("missed_fires", missed_fires, "left out where repeat is not given")
    for delay in delays:
        if repeat is not None and delay is not None:
            raise InvalidFormat("delay", delay, "left out where repeat is given")
    return repeat


def check_spacing(
    debounce_s: float | None, throttle_s: float | None, *delays: object
) -> int | None:
    """Return the time for which a job is debounced or throttled, in ms; `None` if it is not."""
    if debounce_s is not None and throttle_s is not None:
        raise InvalidValue("throttle_s", throttle_s, "left out where debounce_s is given")
    for what, seconds in (("debounce_s", debounce_s), ("throttle_s", throttle_s)):
        if seconds is None:
            continue
        if (delay := next((each for each in delays if each is not None), None)) is not None:
            raise InvalidValue("delay", delay, f"left out where {what} is given")
        return whole_ms(what, seconds)
    return None


def due_at(now_ms: int, delay_ms: float | datetime | None, delay: timedelta | None) -> int:
    """Return when a job is due; a naive datetime is in UTC."""
    if delay_ms is not None and delay is not None:
        raise InvalidValue("delay", delay, "left out where delay_ms is given")
    if delay is not None:
        if not isinstance(delay, timedelta):
            raise InvalidFormat("delay", delay, "a timedelta; delay_ms takes numbers")
        delay_ms = delay / timedelta(milliseconds=1)
    if isinstance(delay_ms, datetime):
        moment = delay_ms if delay_ms.tzinfo else delay_ms.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int | float):
        raise InvalidFormat("delay_ms", delay_ms, "milliseconds, or a datetime")
    if not 0 <= delay_ms <= U64:
        raise InvalidValue("delay_ms", delay_ms, "finite, non-negative and at most 2**64 - 1")
    return now_ms + check_whole("delay_ms", int(delay_ms), U64)


def repeat_spec(  # noqa: PLR0913  (the options of upsert_repeatable_job)
    dialect: str,
    name: str,
    data: Any,
    *,
    repeat: RepeatLike,
    limit: int | None = None,
    start_after_ms: int | None = None,
    end_before_ms: int | None = None,
    attempts: int | None = None,
    backoff: BackoffLike | None = None,
    job_id: str | None = None,
    missed: MissedFiresLike | None = None,
    unless_queued: bool = False,
) -> RepeatSpec:
    """Return the repeatable job that the options describe; raises if they are invalid."""
    pattern = repeat_pattern(repeat)
    retry = retry_override(attempts, backoff)
    if not isinstance(unless_queued, bool):
        raise InvalidFormat("unless_queued", unless_queued, "true or false")
    if retry is not None and dialect == "engine":
        raise InvalidValue(
            "attempts and backoff", retry, "left out for a repeatable job in the engine's dialect"
        )
    return RepeatSpec(
        spec_key(None if job_id is None else check_job_id(job_id), check_name(name), pattern),
        name,
        pattern,
        encode_payload(data),
        limit,
        start_after_ms,
        end_before_ms,
        SKIP if missed is None else missed_fires(missed),
        retry,
        unless_queued,
    )
