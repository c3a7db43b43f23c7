"""Encoding of journal records as fields of stream entries, and back.

Decoding never raises: fields that cannot be decoded are empty or `None`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tambomq.errors import InvalidBody, InvalidFormat, InvalidValue
from tambomq.journal import keys

# A signed 64-bit number has no more digits; parsing longer ones would be slow.
_DIGITS = 19
_MAX_NUMBER = (1 << 63) - 1


class JournalRecord(msgspec.Struct, frozen=True):
    """An event of a message, with the body if it was sent."""

    at_ms: int
    body: bytes | None = None
    event: str = keys.SENT
    id: str = ""
    """Empty if the protocol has no message ids."""
    name: str = ""
    delay_ms: int | None = None
    attempt: int | None = None
    """The number of this receive of the message, from 1."""
    targets: int | None = None
    """The number of receivers."""
    reason: str = ""
    """The reason of a dead letter."""


def fields_of(record: JournalRecord) -> tuple[bytes, ...]:
    """Return names and values in turn, without empty fields.

    Raises `LocalProtocolError` for values that cannot be encoded.
    """
    found = [keys.EVENT, _text("event", record.event)]
    if not record.event:
        raise InvalidFormat("event", record.event, "it must not be empty")
    if record.id:
        found += (keys.ID, _text("id", record.id))
    found += (keys.AT, _number("at_ms", record.at_ms))
    if record.name:
        found += (keys.NAME, _text("name", record.name))
    if record.delay_ms is not None:
        found += (keys.DELAY, _number("delay_ms", record.delay_ms))
    if record.attempt is not None:
        found += (keys.ATTEMPT, _number("attempt", record.attempt))
    if record.targets is not None:
        found += (keys.TARGETS, _number("targets", record.targets))
    if record.reason:
        found += (keys.REASON, _text("reason", record.reason))
    if record.body is not None:
        if not isinstance(record.body, bytes):
            raise InvalidBody(record.body)
        found += (keys.BODY, record.body)
    return tuple(found)


def record_of(fields: Sequence[bytes]) -> JournalRecord:
    """Return the record of an entry; a time that cannot be decoded is 0."""
    found = by_name(fields)
    return JournalRecord(
        at_ms=number(found.get(keys.AT)) or 0,
        body=found.get(keys.BODY),
        event=_shown(found.get(keys.EVENT)),
        id=_shown(found.get(keys.ID)),
        name=_shown(found.get(keys.NAME)),
        delay_ms=number(found.get(keys.DELAY)),
        attempt=number(found.get(keys.ATTEMPT)),
        targets=number(found.get(keys.TARGETS)),
        reason=_shown(found.get(keys.REASON)),
    )


def by_name(fields: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of an entry; of a repeated field the last one."""
    return dict(zip(fields[::2], fields[1::2], strict=False))


def column(entries: Iterable[dict[bytes, bytes]], field: bytes) -> list[Any]:
    """Return one field of all *entries*; `None` where it is missing."""
    return [entry.get(field) for entry in entries]


def number(value: bytes | None) -> int | None:
    """Return a decimal number; `None` if it is none, or exceeds a signed 64-bit integer."""
    if value is None or len(value) > _DIGITS or not value.isdigit():
        return None
    found = int(value)
    return found if found <= _MAX_NUMBER else None


def _number(what: str, value: int) -> bytes:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise InvalidValue(what, value, f"a whole number from 0 to {_MAX_NUMBER}")
    return b"%d" % value


def _text(what: str, value: str) -> bytes:
    try:
        return value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidFormat(what, value, "text") from None


def _shown(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")
