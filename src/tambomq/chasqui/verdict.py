"""What becomes of a job when it arrives and when it fails. No Redis, no clock, no handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from tambomq.chasqui.backoff import QUEUE_BACKOFF, wait_ms
from tambomq.chasqui.job import (
    DECODE_FAILED,
    MALFORMED,
    MAX_ATTEMPTS,
    OVERSIZE_PAYLOAD,
    RETRIES_EXHAUSTED,
    UNRECOVERABLE,
    BackoffSpec,
    Envelope,
)
from tambomq.chasqui.wire import decode_envelope, encode_envelope, read_entry
from tambomq.errors import Reject, RemoteProtocolError
from tambomq.failures import text_of, traceback_of, type_of

MAX_PAYLOAD_BYTES = 1 << 20
MOST_DETAIL = 4000
"""So many characters are kept of what a handler raised."""


class Rules(msgspec.Struct, frozen=True):
    """How often a worker runs a job, and how it waits in between."""

    max_attempts: int = MAX_ATTEMPTS
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    backoff: BackoffSpec = QUEUE_BACKOFF


class Death(msgspec.Struct, frozen=True):
    """It goes to the dead-letter queue: why, and what is kept of it."""

    reason: str
    payload: bytes
    detail: str = ""
    id: str = ""
    name: str = ""
    attempt: int = 0
    """Runs it has had."""
    error_type: str = ""
    """Of what its last run raised; '' if it did not run."""
    traceback: str = ""


class Retry(msgspec.Struct, frozen=True):
    """It runs again, after a while."""

    body: bytes
    """Its envelope for the next run."""
    wait_ms: int


Arrival: TypeAlias = tuple[Envelope, str] | Death
"""A job to run and its name, or why it is not run."""


def arrival(fields: Sequence[bytes], deliveries: int, rules: Rules) -> Arrival:
    """Return what becomes of a stream entry that was delivered *deliveries* times before."""
    body, name = read_entry(fields)
    if body is None:
        return Death(MALFORMED, b"", "missing or non-bytes payload field")
    if len(body) > rules.max_payload_bytes:
        return Death(OVERSIZE_PAYLOAD, body, name=name)
    try:
        envelope = decode_envelope(body)
    except RemoteProtocolError:
        return Death(DECODE_FAILED, body)
    # A delivery that ended in no verdict ended in the death of its worker. The first is free.
    prior = max(envelope.attempt, deliveries - 1)
    if prior + 1 > _budget(envelope, rules):
        return Death(RETRIES_EXHAUSTED, body, "", envelope.id, name, prior)
    return envelope, name


def after_failure(
    envelope: Envelope, name: str, error: BaseException, rules: Rules, draw: Callable[[int], int]
) -> Retry | Death:
    """Return what becomes of a job whose handler raised *error*."""
    ran = envelope.attempt + 1
    if isinstance(error, Reject) or ran >= _budget(envelope, rules):
        reason = UNRECOVERABLE if isinstance(error, Reject) else RETRIES_EXHAUSTED
        body = encode_envelope(envelope)
        return Death(
            reason=reason,
            payload=body,
            detail=text_of(error)[:MOST_DETAIL],
            id=envelope.id,
            name=name,
            attempt=ran,
            error_type=type_of(error),
            traceback=traceback_of(error),
        )
    override = envelope.retry.backoff if envelope.retry else None
    wait = wait_ms(override, ran, draw, rules.backoff)
    return Retry(encode_envelope(msgspec.structs.replace(envelope, attempt=ran)), wait)


def _budget(envelope: Envelope, rules: Rules) -> int:
    own = envelope.retry.max_attempts if envelope.retry else None
    return rules.max_attempts if own is None else own
