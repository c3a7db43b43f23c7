"""The codec of jobs: envelopes, delayed members and stream entries.

Each value is written in one form, and read in every form that the engine reads: the usual one by
a fast typed decoder, the others slowly. Decoding raises nothing but `RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.msgpack import Decoder

from tambomq.chasqui import keys
from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire.msgpack import (
    UNREADABLE,
    UNWRITABLE,
    Shape,
    Uint,
    Uint32,
    checked,
    encode,
    first_value,
    octets,
    text,
    variant,
)
from tambomq.errors import InvalidFormat, InvalidPayload, RemoteProtocolError

DIALECTS = ("auto", "page", "engine")
"""The formats of a delayed member: a length prefix of 1 byte (page) or of 4, lowest first (engine).

``auto``: the script that stores it chooses one that every participant of the queue can read.
"""

_Backoff = tuple[str, Uint, Uint | None, float | None, Uint | None]
_Retry = tuple[Uint32 | None, _Backoff | None] | None
_Full = tuple[str, bytes, Uint, Uint32, _Retry]

_KINDS = ("fixed", "exponential")
_UNKNOWN = "unknown"

_decode_plain = Decoder(tuple[str, bytes, Uint, Uint32]).decode
_decode_full = Decoder(_Full).decode


def encode_envelope(envelope: Envelope) -> bytes:
    """Encode a job; raise `InvalidPayload` if MessagePack cannot hold it."""
    e = envelope
    try:
        if e.retry is None:
            return encode((e.id, e.payload, e.created_at_ms, e.attempt))
        return encode((e.id, e.payload, e.created_at_ms, e.attempt, retry_slots(e.retry)))
    except UNWRITABLE as error:
        raise InvalidPayload(envelope, error) from error


def encode_fresh(id: str, payload: bytes, created_at_ms: int) -> bytes:
    """Encode a job that has not run yet and has no retry options."""
    return encode((id, payload, created_at_ms, 0))


def encode_all_fresh(
    ids: Iterable[str], payloads: Iterable[bytes], created_at_ms: int
) -> list[bytes]:
    """Encode many as `encode_fresh` does; calling it for each takes nearly twice as long."""
    pairs = zip(ids, payloads, strict=True)
    return [encode((id, payload, created_at_ms, 0)) for id, payload in pairs]


def decode_envelope(data: bytes) -> Envelope:
    """Decode the job at the start of *data*; raise `RemoteProtocolError` if there is none."""
    try:
        if data[:1] != b"\x95":
            return Envelope(*_decode_plain(data))
        return _envelope(*_decode_full(data))
    except UNREADABLE:
        return _decode_odd(data)


def retry_slots(retry: RetryOverride) -> tuple[Any, Any]:
    """Return an override as it is encoded; a kind unknown to the engine becomes ``unknown``."""
    if (backoff := retry.backoff) is None:
        return retry.max_attempts, None
    return retry.max_attempts, (
        backoff.kind if backoff.kind in _KINDS else _UNKNOWN,
        backoff.delay_ms,
        backoff.max_delay_ms,
        # The engine reads 2 as well as 2.0, but writes only the latter.
        None if backoff.multiplier is None else float(backoff.multiplier),
        backoff.jitter_ms,
    )


def _envelope(id: str, payload: bytes, created_at_ms: int, attempt: int, retry: _Retry) -> Envelope:
    return Envelope(id, payload, created_at_ms, attempt, _override(retry))


def _override(retry: _Retry) -> RetryOverride | None:
    if retry is None:
        return None
    max_attempts, backoff = retry
    return RetryOverride(max_attempts, None if backoff is None else BackoffSpec(*backoff))


# --- delayed members ---

_ENVELOPE_STARTS = frozenset((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
"""The MessagePack type bytes of arrays and maps."""


def check_dialect(dialect: str) -> str:
    """Return *dialect* if it is one of `DIALECTS`; raise `InvalidFormat` if not."""
    if dialect not in DIALECTS:
        raise InvalidFormat("dialect", dialect, ", ".join(DIALECTS[:-1]) + f" or {DIALECTS[-1]}")
    return dialect


def encode_member(name: str, envelope: bytes, dialect: str) -> bytes:
    """Encode a delayed member; raise `InvalidFormat` for a name that the dialect cannot hold.

    ``auto`` is encoded as ``engine``: see `to_store`.
    """
    keys.check_name(name)
    if check_dialect(dialect) == "page":
        keys.check_page_name(name)
    encoded = name.encode()
    return len(encoded).to_bytes(1 if dialect == "page" else 4, "little") + encoded + envelope


def to_store(name: str, envelope: bytes, dialect: str) -> tuple[str, bytes]:
    """Return the arguments of the script that stores a delayed job: the dialect and the member.

    With ``auto`` the script converts the member to the page dialect, unless a released engine
    shares the queue. A name that the page dialect cannot hold is stored in the engine's.
    """
    if dialect == "auto" and not keys.fits_page(name):
        dialect = "engine"
    return dialect, encode_member(name, envelope, dialect)


def decode_member(member: bytes) -> tuple[str, bytes]:
    """Decode a delayed member into name and envelope; raise `RemoteProtocolError` if it is none.

    The dialect is the one in which an envelope begins right after the name. The promote script
    has the same rule: change both.
    """
    fitting = [(at, end) for at, end in (_engine_name(member), _page_name(member)) if end]
    for at, end in fitting:
        if end < len(member) and member[end] in _ENVELOPE_STARTS:
            return text(member[at:end]), member[end:]
    for at, end in fitting:
        return text(member[at:end]), member[end:]
    raise RemoteProtocolError(f"a delayed member of {len(member)} bytes, shorter than its name")


def dialect_of(member: bytes) -> str | None:
    """Return the dialect of *member*; `None` if no envelope follows its name in either."""
    for dialect, (_, end) in (("engine", _engine_name(member)), ("page", _page_name(member))):
        if 0 < end < len(member) and member[end] in _ENVELOPE_STARTS:
            return dialect
    return None


def _engine_name(member: bytes) -> tuple[int, int]:
    """Return the start and the end of the name; an end of 0 means that it does not fit."""
    size = int.from_bytes(member[:4], "little")
    fits = len(member) > 4 and size <= min(keys.NAME_BYTES, len(member) - 4)  # noqa: PLR2004  a u32
    return 4, 4 + size if fits else 0


def _page_name(member: bytes) -> tuple[int, int]:
    end = 1 + member[0] if member else 0
    return 1, end if end < len(member) else 0


# --- stream entries ---


def read_entry(fields: Sequence[bytes]) -> tuple[bytes | None, str]:
    """Return envelope and dispatch name of a stream entry; `None` and ``''`` if missing."""
    match fields:
        case [keys.PAYLOAD, envelope]:
            return envelope, ""
        case [keys.PAYLOAD, envelope, keys.NAME, name]:
            return envelope, _name(name)
        case _:
            found = by_name(fields)
            return found.get(keys.PAYLOAD), _name(found.get(keys.NAME, b""))


def by_name(fields: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of a stream entry by name; of repeated ones the first counts."""
    found: dict[bytes, bytes] = {}
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        found.setdefault(name, value)
    return found


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


# --- other forms that the engine reads ---


_ENVELOPE = Shape(("id", "payload", "created_at_ms", "attempt", "retry"), (0, None), 3)
_RETRY = Shape(("max_attempts", "backoff"), (None, None), 2)
_BACKOFF = Shape(
    ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms"), (None, None, None), 5
)


def _decode_odd(data: bytes) -> Envelope:
    id, payload, created_at_ms, attempt, retry = _ENVELOPE.slots(first_value(data))
    slots = text(id), octets(payload), created_at_ms, attempt, _straight_retry(retry)
    return _envelope(*checked(slots, _Full))


def read_retry(value: Any) -> RetryOverride | None:
    """Return the retry override of a decoded *value*; raise `RemoteProtocolError` if invalid."""
    return _override(checked(_straight_retry(value), _Retry))


def _straight_retry(value: Any) -> Any:
    if value is None:
        return None
    max_attempts, backoff = _RETRY.slots(value)
    if backoff is not None:
        kind, *rest = _BACKOFF.slots(backoff)
        backoff = [_straight_kind(kind), *rest]
    return max_attempts, backoff


def _straight_kind(value: Any) -> str:
    kind, body = variant(value)
    if body is not None:
        raise RemoteProtocolError("a backoff kind has no fields")
    if type(kind) is int and kind >= 0:
        return (*_KINDS, _UNKNOWN)[min(kind, len(_KINDS))]
    return text(kind)
