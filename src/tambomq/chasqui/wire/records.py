"""The decoder of dead letters and events, from the fields of their stream entries.

It never raises: operators must be able to see whatever other clients have written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tambomq.chasqui import keys
from tambomq.chasqui.job import DeadLetter, QueueEvent
from tambomq.chasqui.wire.envelope import by_name

_NUMBERS = frozenset(
    (
        *(b"attempt", b"backoff_ms", b"delay_ms", b"duration_us", b"ts"),
        *(b"count", b"wait_ms", b"percent", b"progress"),
    )
)
# A 64-bit number has at most 20 digits. Longer ones stay text, since int() of them is slow.
_DIGITS = 20


def read_dead_letter(id: bytes, fields: Sequence[bytes]) -> DeadLetter:
    """Decode an entry of the dead-letter queue."""
    found = by_name(fields)
    detail, error_type, traceback = (
        None if (value := found.get(field)) is None else _text(value)
        for field in (b"detail", b"error_type", b"traceback")
    )
    return DeadLetter(
        dlq_id=_text(id),
        source_id=_text(found.get(b"source_id", b"")),
        reason=_text(found.get(b"reason", b"")),
        detail=detail,
        payload=found.get(keys.PAYLOAD, b""),
        name=_text(found.get(keys.NAME, b"")),
        error_type=error_type,
        traceback=traceback,
    )


def read_event(id: bytes, fields: Sequence[bytes]) -> QueueEvent:
    """Decode an entry of the events stream."""
    found = by_name(fields)
    event, job_id, name = (_text(found.pop(field, b"")) for field in (b"e", b"id", keys.NAME))
    others = {_text(field): _number_or_text(field, value) for field, value in found.items()}
    return QueueEvent(event, job_id or None, name, others, _text(id))


def _number_or_text(field: bytes, value: bytes) -> int | str:
    if field in _NUMBERS and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    return _text(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
