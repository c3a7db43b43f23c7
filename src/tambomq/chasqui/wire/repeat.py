"""The codec of repeatable specs. The counter of fires is not part of it, but a field of its own."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec.msgpack import Encoder

from tambomq.chasqui.repeat import SKIP, MissedFiresPolicy, RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import read_retry, retry_slots
from tambomq.chasqui.wire.msgpack import (
    UNWRITABLE,
    Shape,
    Uint,
    Uint32,
    checked,
    first_value,
    octets,
    text,
    variant,
)
from tambomq.errors import InvalidPayload, RemoteProtocolError

# An interval of 0 is refused: such a spec has no next fire.
_Interval = Annotated[int, msgspec.Meta(ge=1)]
_Counts = tuple[Uint | None, Uint | None, Uint | None, Uint]

_SPEC = Shape(
    (
        *("key", "job_name", "pattern", "payload"),
        *("limit", "start_after_ms", "end_before_ms", "fired", "missed_fires", "retry"),
    ),
    (None, None, None, 0, "Skip", None),
    7,
)
_CRON = Shape(("expression", "tz"), (None,), 2)
_EVERY = Shape(("interval_ms",), (), 1)
_FIRE_ALL = Shape(("max_catchup",), (), 1)

# In the order of the engine's enums: other clients may write the index instead of the name.
_PATTERNS = ("Cron", "Every")
_POLICIES = ("Skip", "FireOnce", "FireAll")

_encode = Encoder().encode


def encode_spec(spec: RepeatSpec, dialect: str = "auto") -> bytes:
    """Encode a spec; raise `InvalidPayload` if MessagePack cannot hold it.

    It has nine elements, as newer releases of the engine write it, and with a retry override a
    tenth, which 1.3.0 drops. In the ``engine`` dialect it is as 1.3.0 writes it: eight elements
    if missed fires are skipped.
    """
    try:
        slots: list[Any] = [
            spec.key,
            spec.job_name,
            _pattern_slot(spec.pattern),
            # Encoded twice, unlike in an envelope: the engine's scheduler stops at any other spec.
            _encode(spec.payload),
            spec.limit,
            spec.start_after_ms,
            spec.end_before_ms,
            0,
        ]
        if dialect != "engine" or spec.retry or spec.missed_fires.kind != SKIP.kind:
            slots.append(_policy_slot(spec.missed_fires))
        if spec.retry is not None:
            slots.append(retry_slots(spec.retry))
        return _encode(slots)
    except UNWRITABLE as error:
        raise InvalidPayload(spec, error) from error


def decode_spec(data: bytes) -> RepeatSpec:
    """Decode the spec at the start of *data*; raise `RemoteProtocolError` if there is none."""
    key, job_name, pattern, payload, *counts, missed_fires, retry = _SPEC.slots(first_value(data))
    limit, start_after_ms, end_before_ms, _ = checked(counts, _Counts)
    return RepeatSpec(
        text(key),
        text(job_name),
        _read_pattern(pattern),
        octets(first_value(octets(payload))),
        limit,
        start_after_ms,
        end_before_ms,
        _read_policy(missed_fires),
        read_retry(retry),
    )


def _pattern_slot(pattern: RepeatPattern) -> dict[str, tuple[Any, ...]]:
    if pattern.kind == "every":
        return {"Every": (pattern.interval_ms,)}
    return {"Cron": (pattern.expression, pattern.tz)}


def _policy_slot(policy: MissedFiresPolicy) -> str | dict[str, tuple[Any, ...]]:
    if policy.kind == "fire-all":
        return {"FireAll": (policy.max_catchup,)}
    return "FireOnce" if policy.kind == "fire-once" else "Skip"


def _read_pattern(value: Any) -> RepeatPattern:
    match _variant_of(_PATTERNS, value):
        case "Cron", fields:
            expression, tz = _CRON.slots(fields)
            return RepeatPattern.cron(text(expression), tz=None if tz is None else text(tz))
        case "Every", fields:
            [interval_ms] = _EVERY.slots(fields)
            return RepeatPattern.every(checked(interval_ms, _Interval))
    raise RemoteProtocolError("a pattern that is neither Cron nor Every")


def _read_policy(value: Any) -> MissedFiresPolicy:
    match _variant_of(_POLICIES, value):
        case "Skip", None:
            return SKIP
        case "FireOnce", None:
            return MissedFiresPolicy.fire_once()
        case "FireAll", fields:
            [max_catchup] = _FIRE_ALL.slots(fields)
            return MissedFiresPolicy("fire-all", checked(max_catchup, Uint32))
    raise RemoteProtocolError("a policy that is none of Skip, FireOnce and FireAll")


def _variant_of(names: tuple[str, ...], value: Any) -> tuple[Any, Any]:
    name, fields = variant(value)
    if type(name) is int and 0 <= name < len(names):
        name = names[name]
    return name, fields
