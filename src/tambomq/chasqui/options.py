"""Checked options of a worker, and their defaults.

One struct per stage that needs them: `FetchOptions` for the fetcher, `RunOptions` for the handler
pool. `RetryPolicy` is part of the latter, and of every other place that decides about a failure.
"""

from __future__ import annotations

import msgspec

from tambomq.chasqui.backoff import QUEUE_BACKOFF
from tambomq.chasqui.decisions import MAX_PAYLOAD_BYTES, RetryPolicy
from tambomq.chasqui.job import U32, BackoffLike, backoff_spec, check_whole
from tambomq.chasqui.wire.envelope import check_dialect

CLAIM_IDLE_MS = 30_000
READ_BLOCK_MS = 5_000
# The store treats a server that answers later than this as unreachable.
MAX_BLOCK_MS = 20_000
READ_COUNT = 600
RESULT_TTL_MS = 3_600_000
DLQ_CAP = 100_000
DAY_MS = 24 * 3_600_000


class FetchOptions(msgspec.Struct, frozen=True):
    """How the fetcher reads the stream."""

    read_count: int
    """Entries in one read, at most."""
    block_ms: int
    """How long a read waits for entries."""
    idle_ms: int
    """The lease: an entry that is not renewed for so long may be claimed by another worker."""
    limit: tuple[int, int] | None = None
    """Jobs that may start in so many milliseconds, over all workers of the queue."""


class RunOptions(msgspec.Struct, frozen=True):
    """How the handler pool runs jobs, and how their outcomes are stored."""

    concurrency: int
    retry: RetryPolicy
    dialect: str
    """The format of jobs that wait for a retry."""
    dlq_cap: int
    result_ttl_s: int | None
    """`None` keeps no results."""


def fetch_options(
    read_count: int | None,
    block_ms: int | None,
    idle_ms: int | None,
    limiter: tuple[int, int] | None,
) -> FetchOptions:
    """Check the user's options for the fetcher; raises `InvalidValue`."""
    return FetchOptions(
        max(1, whole_or(READ_COUNT, "read_count", read_count)),
        min(whole_or(READ_BLOCK_MS, "read_block_ms", block_ms), MAX_BLOCK_MS),
        whole_or(CLAIM_IDLE_MS, "claim_min_idle_ms", idle_ms, minimum=1),
        None if limiter is None else _limit(*limiter),
    )


def run_options(
    concurrency: int,
    max_attempts: int,
    max_payload_bytes: int | None,
    backoff: BackoffLike | None,
    dialect: str,
    dlq_cap: int | None,
    result_ttl_ms: int | None,
    *,
    store_results: bool,
) -> RunOptions:
    """Check the user's options for runs; raises `InvalidValue` or `InvalidFormat`."""
    retry = RetryPolicy(
        check_whole("max_attempts", max_attempts, U32),
        whole_or(MAX_PAYLOAD_BYTES, "max_payload_bytes", max_payload_bytes),
        QUEUE_BACKOFF if backoff is None else backoff_spec(backoff),
    )
    cap = whole_or(DLQ_CAP, "dlq_max_stream_len", dlq_cap, minimum=1)
    ttl_ms = _result_ttl_ms(result_ttl_ms)
    return RunOptions(
        max(1, check_whole("concurrency", concurrency, 100_000)),
        retry,
        check_dialect(dialect),
        cap,
        -(-ttl_ms // 1000) if store_results else None,
    )


def _result_ttl_ms(ttl_ms: int | None) -> int:
    if ttl_ms is None:
        return RESULT_TTL_MS
    return check_whole("result_ttl_ms", ttl_ms, 3650 * DAY_MS, minimum=1)


def whole_or(default: int, what: str, value: int | None, minimum: int = 0) -> int:
    """Return *value*, a whole number of 32 bits, or *default* if it is `None`."""
    return default if value is None else check_whole(what, value, U32, minimum)


def _limit(jobs: int, duration_ms: int) -> tuple[int, int]:
    check_whole("limiter jobs", jobs, U32, minimum=1)
    return jobs, check_whole("limiter ms", duration_ms, DAY_MS, minimum=1)
