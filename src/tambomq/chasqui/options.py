"""What a worker is asked for, checked, and what it does where it is not asked."""

from __future__ import annotations

import msgspec

from tambomq.chasqui.backoff import QUEUE_BACKOFF
from tambomq.chasqui.job import U32, BackoffLike, backoff_spec, check_whole
from tambomq.chasqui.verdict import MAX_PAYLOAD_BYTES, Rules
from tambomq.chasqui.wire import check_dialect

CLAIM_IDLE_MS = 30_000
READ_BLOCK_MS = 5_000
# A reply that takes longer means to the store that the server is gone.
MOST_BLOCK_MS = 20_000
READ_COUNT = 600
RESULT_TTL_MS = 3_600_000
DLQ_CAP = 100_000
DAY_MS = 24 * 3_600_000


class Pace(msgspec.Struct, frozen=True):
    """How a worker reads."""

    concurrency: int
    read_count: int
    block_ms: int
    idle_ms: int
    limit: tuple[int, int] | None = None
    """Jobs that may start in so many milliseconds, over all workers of the queue."""


class Duties(msgspec.Struct, frozen=True):
    """What a worker does with a job beside running it."""

    rules: Rules
    dialect: str
    dlq_cap: int
    result_ttl_s: int | None
    """`None` keeps no results."""


def pace(
    concurrency: int,
    read_count: int | None,
    block_ms: int | None,
    idle_ms: int | None,
    limiter: tuple[int, int] | None,
) -> Pace:
    """Return how to read; raise `InvalidValue`."""
    return Pace(
        max(1, check_whole("concurrency", concurrency, 100_000)),
        max(1, whole_or(READ_COUNT, "read_count", read_count)),
        min(whole_or(READ_BLOCK_MS, "read_block_ms", block_ms), MOST_BLOCK_MS),
        whole_or(CLAIM_IDLE_MS, "claim_min_idle_ms", idle_ms, least=1),
        None if limiter is None else _limit(*limiter),
    )


def duties(
    max_attempts: int,
    max_payload_bytes: int | None,
    backoff: BackoffLike | None,
    dialect: str,
    dlq_cap: int | None,
    result_ttl_ms: int | None,
) -> Duties:
    """Return what to do with jobs; raise `InvalidValue` or `InvalidFormat`."""
    rules = Rules(
        check_whole("max_attempts", max_attempts, U32),
        whole_or(MAX_PAYLOAD_BYTES, "max_payload_bytes", max_payload_bytes),
        QUEUE_BACKOFF if backoff is None else backoff_spec(backoff),
    )
    cap = whole_or(DLQ_CAP, "dlq_max_stream_len", dlq_cap, least=1)
    ttl_s = None if result_ttl_ms is None else -(-result_ttl_ms // 1000)
    return Duties(rules, check_dialect(dialect), cap, ttl_s)


def result_ttl(result_ttl_ms: int | None) -> int:
    """Return how long a result is kept; raise `InvalidValue`."""
    if result_ttl_ms is None:
        return RESULT_TTL_MS
    return check_whole("result_ttl_ms", result_ttl_ms, 3650 * DAY_MS, least=1)


def whole_or(default: int, what: str, value: int | None, least: int = 0) -> int:
    """Return *value* if it is a whole number of 32 bits, *default* if there is none."""
    return default if value is None else check_whole(what, value, U32, least)


def _limit(most: int, duration_ms: int) -> tuple[int, int]:
    check_whole("limiter jobs", most, U32, least=1)
    return most, check_whole("limiter ms", duration_ms, DAY_MS, least=1)
