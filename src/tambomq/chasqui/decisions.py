"""Decisions about a job: run or dead-letter it when delivered, retry or dead-letter a failed one.

Pure functions: no Redis, no clock, no handler.
"""

from __future__ import annotations

import math
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
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope, read_entry
from tambomq.errors import Reject, RemoteProtocolError, RetryIn
from tambomq.failures import text_of, traceback_of, type_of

MAX_PAYLOAD_BYTES = 1 << 20
MAX_DETAIL = 4000
"""Characters of an error's text that a dead letter keeps."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often a worker runs a job, and how long it waits before each retry."""

    max_attempts: int = MAX_ATTEMPTS
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    backoff: BackoffSpec = QUEUE_BACKOFF


class DeadLettered(msgspec.Struct, frozen=True):
    """The decision to move a job to the dead-letter queue, with what is kept of it there."""

    reason: str
    payload: bytes
    detail: str = ""
    id: str = ""
    name: str = ""
    attempt: int = 0
    """Runs it has had."""
    error_type: str = ""
    """The type of the error that its last run raised; '' if it did not run."""
    traceback: str = ""


class Retry(msgspec.Struct, frozen=True):
    """The decision to run a job again."""

    body: bytes
    """Its envelope for the next run."""
    wait_ms: int


Admission: TypeAlias = tuple[Envelope, str] | DeadLettered
"""A job to run and its name, or the reason why it must not run."""


def admit_delivery(fields: Sequence[bytes], deliveries: int, policy: RetryPolicy) -> Admission:
    """Decide whether to run a stream entry; *deliveries* counts its earlier deliveries."""
    body, name = read_entry(fields)
    if body is None:
        return DeadLettered(MALFORMED, b"", "missing or non-bytes payload field")
    if len(body) > policy.max_payload_bytes:
        return DeadLettered(OVERSIZE_PAYLOAD, body, name=name)
    try:
        envelope = decode_envelope(body)
    except RemoteProtocolError:
        return DeadLettered(DECODE_FAILED, body)
    # A delivery that the envelope does not count was not settled: its worker died. One is forgiven.
    prior = max(envelope.attempt, deliveries - 1)
    if prior + 1 > _max_attempts(envelope, policy):
        return DeadLettered(RETRIES_EXHAUSTED, body, "", envelope.id, name, prior)
    return envelope, name


def after_failure(
    envelope: Envelope,
    name: str,
    error: BaseException,
    policy: RetryPolicy,
    draw: Callable[[int], int],
) -> Retry | DeadLettered:
    """Decide what to do with a job whose handler raised *error*.

    *draw* returns a random number below its argument, for the jitter of the backoff.
    """
    attempt = envelope.attempt + 1
    if isinstance(error, Reject) or attempt >= _max_attempts(envelope, policy):
        reason = UNRECOVERABLE if isinstance(error, Reject) else RETRIES_EXHAUSTED
        body = encode_envelope(envelope)
        return DeadLettered(
            reason=reason,
            payload=body,
            detail=text_of(error)[:MAX_DETAIL],
            id=envelope.id,
            name=name,
            attempt=attempt,
            error_type=type_of(error),
            traceback=traceback_of(error),
        )
    if isinstance(error, RetryIn):
        wait = math.ceil(error.seconds * 1000)
    else:
        override = envelope.retry.backoff if envelope.retry else None
        wait = wait_ms(override, attempt, draw, policy.backoff)
    return Retry(encode_envelope(msgspec.structs.replace(envelope, attempt=attempt)), wait)


def _max_attempts(envelope: Envelope, policy: RetryPolicy) -> int:
    own = envelope.retry.max_attempts if envelope.retry else None
    return policy.max_attempts if own is None else own
