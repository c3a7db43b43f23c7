"""Converts ChasquiMQ's raw replies to columns.

Nothing here raises: a value that cannot be decoded is reported in its row's ``error``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from tambomq.chasqui.bulk.scan import Row, moment
from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.keys import NAME, PAYLOAD
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire.envelope import by_name, decode_envelope, decode_member, read_entry
from tambomq.chasqui.wire.msgpack import UNREADABLE, Uint, Uint32
from tambomq.chasqui.wire.repeat import decode_spec
from tambomq.errors import RemoteProtocolError
from tambomq.spark.core.columns import BYTES, LONG, TEXT, clock, constant
from tambomq.spark.core.stream_columns import Fields, moments, whole_numbers

Values: TypeAlias = dict[str, Sequence[Any]]
"""Columns by name."""

NO_ENVELOPE: Final = "the entry has no envelope"
DELETED: Final = "the entry is gone"

_EVENT, _JOB, _REASON = b"e", b"id", b"reason"
_TEXTS: Final = (_EVENT, _JOB, NAME, _REASON)
_NUMBERS: Final = (
    *(b"attempt", b"duration_us", b"backoff_ms", b"delay_ms"),
    *(b"count", b"wait_ms", b"percent"),
)
_TS: Final = b"ts"
_PERCENT, _PROGRESS = b"percent", b"progress"
"""A job's progress: the older field name, and the one that the engine writes."""
_KNOWN: Final = frozenset((*_TEXTS, *_NUMBERS, _TS, _PROGRESS))
# All numbers of this many digits fit into 64 bits.
_DIGITS: Final = 18

_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
# The common case: an envelope without retry options.
_usual = msgspec.msgpack.Decoder(tuple[str, bytes, Uint, Uint32]).decode


def jobs(rows: Sequence[Row]) -> Values:
    """Return the columns of stream entries."""
    ids, entries, fields = _taken_apart(rows)
    return {
        "entry_id": ids,
        "name": _names(fields),
        "enqueued_at": moments(ids),
        **_opened(fields.values(PAYLOAD), entries),
    }


def letters(rows: Sequence[Row]) -> Values:
    """Return the columns of dead letters."""
    ids, entries, fields = _taken_apart(rows)
    return {
        "dlq_id": ids,
        "source_id": fields.column(b"source_id"),
        "reason": fields.column(_REASON),
        "detail": fields.column(b"detail"),
        "error_type": fields.column(b"error_type"),
        "traceback": fields.column(b"traceback"),
        "name": _names(fields),
        "died_at": moments(ids),
        **_opened(fields.values(PAYLOAD), entries),
    }


def events(rows: Sequence[Row]) -> Values:
    """Return the columns of events."""
    ids, entries, fields = _taken_apart(rows)
    nothing = pa.nulls(len(ids), LONG)
    texts = {name: fields.array(name) for name in (*_NUMBERS, _TS, _PROGRESS)}
    numbers = {name: nothing if t is None else whole_numbers(t) for name, t in texts.items()}
    sound = _KNOWN.issuperset(fields.names)
    for name, found in numbers.items():
        if found is None:
            numbers[name], sound = _numbers(fields.values(name)), False
    numbers[_PERCENT] = pc.coalesce(numbers[_PROGRESS], numbers[_PERCENT])
    return {
        "entry_id": ids,
        "recorded_at": moments(ids),
        "event": fields.column(_EVENT),
        "id": _job_ids(fields),
        "name": _names(fields),
        "ts": clock(numbers[_TS]),
        "reason": fields.column(_REASON),
        **{name.decode(): numbers[name] for name in _NUMBERS},
        "others": constant(None, len(ids)) if sound else [*map(_others, entries)],
    }


def delayed(members: Sequence[bytes], scores: Sequence[bytes]) -> Values:
    """Return the columns of delayed jobs."""
    names, bodies = [], []
    for member in members:
        try:
            name, body = decode_member(member)
        except RemoteProtocolError:
            name, body = None, member
        names.append(name)
        bodies.append(body)
    return {
        "name": names,
        "due_at": [moment(score) for score in scores],
        **_opened(bodies, members, whole=members),
    }


def specs(keys: Sequence[bytes], scores: Sequence[bytes], found: Sequence[Any]) -> Values:
    """Return the columns of repeatable specs; *found* has bodies and counts, or `None`."""
    read = [_spec(each[0] if each else None) for each in found]
    good = [spec for spec, _ in read]
    return {
        "key": keys,
        "name": [spec and spec.job_name for spec in good],
        "pattern": [spec and spec.pattern.signature for spec in good],
        "every_ms": [spec and spec.pattern.interval_ms for spec in good],
        "cron": [spec and spec.pattern.expression for spec in good],
        "tz": [spec and spec.pattern.tz for spec in good],
        "next_fire_at": [moment(score) for score in scores],
        "payload": [spec and spec.payload for spec in good],
        "fires_at_most": [spec and spec.limit for spec in good],
        "start_after": [spec and spec.start_after_ms for spec in good],
        "end_before": [spec and spec.end_before_ms for spec in good],
        "fired": [_count(each[1]) if each else None for each in found],
        "missed_fires": [spec and spec.missed_fires.kind for spec in good],
        "max_catchup": [spec and spec.missed_fires.max_catchup for spec in good],
        "max_attempts": [_max_attempts(spec.retry) if spec else None for spec in good],
        "backoff": [_backoff(spec.retry) if spec else None for spec in good],
        "error": [error for _, error in read],
        "raw": [
            each[0] if each and error else None
            for each, (_, error) in zip(found, read, strict=True)
        ],
    }


def pending(found: Sequence[Any], rows: Sequence[Row]) -> Values:
    """Return the columns of pending entries; *rows* are the entries themselves."""
    values = jobs([[id, fields or ()] for id, fields in rows])
    deleted = [fields is None for _, fields in rows]
    if any(deleted):
        errors = zip(values["error"], deleted, strict=True)
        values["error"] = [DELETED if lost else error for error, lost in errors]
        raws = zip(values["raw"], deleted, strict=True)
        values["raw"] = [None if lost else raw for raw, lost in raws]
    return {
        **values,
        "consumer": [each[1] for each in found],
        "idle_ms": [each[2] for each in found],
        "deliveries": [each[3] for each in found],
    }


# ── envelopes ────────────────────────────────────────────────────────────────


def _opened(
    bodies: Sequence[bytes | None], rows: Sequence[Any], whole: Sequence[bytes] | None = None
) -> Values:
    """Return the columns decoded from envelopes; undecodable ones keep *whole* as ``raw``."""
    nothing = constant(None, len(bodies))
    try:
        usual = zip(*map(_usual, bodies), strict=True)  # type: ignore[arg-type]
        return _of_envelopes((*usual, ()), nothing, nothing)
    except (*UNREADABLE, TypeError):
        pass
    try:
        good = [decode_envelope(body) for body in bodies]  # type: ignore[arg-type]
    except (RemoteProtocolError, TypeError):
        return _opened_one_by_one(bodies, rows, whole)
    return _of_envelopes(zip(*map(astuple, good), strict=True), nothing, nothing)


def _opened_one_by_one(
    bodies: Sequence[bytes | None], rows: Sequence[Any], whole: Sequence[bytes] | None
) -> Values:
    good: list[Envelope | None] = []
    errors: list[str | None] = []
    raws: list[bytes | None] = []
    for index, body in enumerate(bodies):
        envelope, error, raw = None, None, None
        try:
            if body is None:
                error, raw = NO_ENVELOPE, _pack(rows[index])
            else:
                envelope = decode_envelope(body)
        except RemoteProtocolError as wrong:
            error, raw = str(wrong), whole[index] if whole else body
        good.append(envelope)
        errors.append(error)
        raws.append(raw)
    slots = (astuple(each) if each else (None,) * len(Envelope.__struct_fields__) for each in good)
    return _of_envelopes(zip(*slots, strict=True), errors, raws)


def _of_envelopes(columns: Iterable[Sequence[Any]], errors: Any, raws: Any) -> Values:
    ids, payloads, created, attempts, retries = columns
    # Skip the loop if no job has retry options.
    if not any(retries):
        retries = ()
    return {
        "id": ids,
        "payload": payloads,
        "created_at": _created(created),
        "attempt": attempts,
        "max_attempts": [*map(_max_attempts, retries)] or constant(None, len(ids)),
        "backoff": [*map(_backoff, retries)] or constant(None, len(ids)),
        "error": errors,
        "raw": raws,
    }


def _created(ms: Sequence[int | None]) -> Any:
    try:
        return clock(pa.array(ms, LONG))
    except OverflowError:
        return ms


def _max_attempts(retry: RetryOverride | None) -> int | None:
    return retry.max_attempts if retry else None


def _backoff(retry: RetryOverride | None) -> bytes | None:
    spec: BackoffSpec | None = retry.backoff if retry else None
    return _json(spec.to_dict()) if spec else None


def _spec(body: bytes | None) -> tuple[RepeatSpec | None, str | None]:
    if body is None:
        return None, "there is no such spec"
    try:
        return decode_spec(body), None
    except RemoteProtocolError as wrong:
        return None, str(wrong)


def _count(value: bytes | None) -> int:
    return int(value) if value and value.isdigit() else 0


# ── fields ───────────────────────────────────────────────────────────────────


def _taken_apart(rows: Sequence[Row]) -> tuple[pa.Array, Sequence[Any], Fields]:
    ids, entries = zip(*rows, strict=True)
    return pa.array(ids, BYTES), entries, Fields(entries)


def _names(fields: Fields) -> pa.Array:
    """Return dispatch names; empty where missing or not UTF-8."""
    found = fields.array(NAME)
    if found is None:
        return pa.repeat("", fields.count)
    try:
        return found.cast(TEXT).fill_null("")
    except pa.ArrowInvalid:
        return pa.array([read_entry((NAME, each or b""))[1] for each in found.to_pylist()], TEXT)


def _job_ids(fields: Fields) -> Any:
    """Return job ids; null where missing or empty."""
    found = fields.column(_JOB)
    if pc.min(pc.binary_length(found)).as_py() == 0:
        return [each or None for each in found.to_pylist()]
    return found


def _numbers(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array([_number(value) for value in values], LONG)


def _number(value: bytes | None) -> int | None:
    digits = value is not None and value.isdigit() and len(value) <= _DIGITS
    return int(value or b"") if digits else None


def _others(entry: Sequence[bytes]) -> bytes | None:
    """Return the fields that have no column, or do not fit in theirs, as JSON."""
    rest = {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in by_name(entry).items()
        if name not in _KNOWN or (name not in _TEXTS and _number(value) is None)
    }
    return _json(rest) if rest else None
