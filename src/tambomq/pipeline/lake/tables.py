"""Every table of the lake and its columns. docs/guides/pipeline.md shows the same."""

from __future__ import annotations

from typing import Final

from tambomq.spark.core.columns import BOOL, BYTES, LONG, TEXT, TIME, Column, Columns

_PLACE: Final = (
    Column("protocol", TEXT, "rsmq, chasqui, gomq or kqueue"),
    Column("queue", TEXT, "the queue it happened in"),
)

TAILED: Final = Columns(
    *_PLACE,
    Column("source", TEXT, "where it was read: events, dlq or journal"),
    Column("entry_id", TEXT, "the id of the entry there"),
    Column("recorded_at", TIME, "when the entry was written, from its id"),
    Column("at", TIME, "when it happened, by the clock of the process that reports it"),
    Column("event", TEXT, "what happened; dlq for a dead letter"),
    Column("id", TEXT, "the job or message; null if it is about none"),
    Column("name", TEXT, "the job's dispatch name, or the consumer; null where there is none"),
    Column("attempt", LONG, "which run of the job, or which receive, from 1 on"),
    Column("duration_us", LONG, "microseconds that the handler took"),
    Column("delay_ms", LONG, "milliseconds until the first run"),
    Column("backoff_ms", LONG, "milliseconds until the next run"),
    Column("reason", TEXT, "what was raised, or why it is dead"),
    Column("detail", TEXT, "of a dead letter, what the handler raised"),
    Column("body", BYTES, "the body that was sent, if it was recorded"),
    Column("others", TEXT, "fields without a column, as JSON"),
)
"""The columns of the pipeline's Spark source: bronze without ``date``."""

BRONZE: Final = Columns(
    *TAILED,
    Column("date", "DATE", "the day it was recorded"),
)

STATE: Final = Columns(
    *_PLACE,
    Column("id", TEXT, "the job or message"),
    Column("named", "STRUCT<place: BIGINT, text: STRING>", "the first name in its events"),
    Column("enqueued_ms", LONG, "when it was enqueued, by its events"),
    Column("ready_ms", LONG, "when it first waited for a worker, by its events"),
    Column("delay_ms", LONG, "how long it was delayed"),
    Column("first_run_ms", LONG, "when its first run began"),
    Column("last_run_ms", LONG, "when its last run began"),
    Column("final_ms", LONG, "the time of its last terminal event"),
    Column("buried_ms", LONG, "when it was dead-lettered"),
    Column("attempts", LONG, "runs it had"),
    Column("rescheduled", LONG, "events that scheduled another run"),
    Column("last", LONG, "position and phase of its last event"),
    Column("ran", "STRUCT<place: BIGINT, number: BIGINT>", "microseconds that its last run took"),
    Column("why", "STRUCT<place: BIGINT, text: STRING>", "why it is dead"),
    Column("erred", "STRUCT<place: BIGINT, text: STRING>", "what its last failed run raised"),
    Column("body_bytes", LONG, "size of its body in bytes"),
    Column("events", LONG, "rows of bronze about it"),
    Column("seen_ms", LONG, "when the last of them was recorded"),
    Column("born", LONG, "how many of them are enqueue events"),
    Column("revived", LONG, "1 if the job had ended before, and was enqueued again"),
)
"""The state of a lifecycle. Two states of one lifecycle can be merged."""

CLOSED: Final = Columns(
    *STATE,
    Column("date", "DATE", "the day it ended"),
)

SILVER: Final = Columns(
    *_PLACE,
    Column("id", TEXT, "the job or message"),
    Column("name", TEXT, "the job's dispatch name; empty where it has none"),
    Column("enqueued_at", TIME, "when it was added or sent; null if no event says so"),
    Column("delay_ms", LONG, "milliseconds it was delayed by"),
    Column("first_run_at", TIME, "when it was first run or received"),
    Column("last_run_at", TIME, "when it was last run or received"),
    Column("finished_at", TIME, "when it ended; null before that"),
    Column("attempts", LONG, "how often it was run or received"),
    Column("retries", LONG, "how often it was retried"),
    Column(
        "outcome",
        TEXT,
        "waiting, delayed, running, retrying, done, dead, cancelled, moved to another queue, "
        "or sent if no later events are recorded",
    ),
    Column("wait_ms", LONG, "milliseconds from when it could run to its first run"),
    Column("run_ms", LONG, "milliseconds its last run took"),
    Column("reason", TEXT, "why it is dead"),
    Column("error", TEXT, "what its last failed run raised"),
    Column("body_bytes", LONG, "size of its body in bytes, if recorded"),
    Column("events", LONG, "rows of bronze about it"),
    Column("revived", "BOOLEAN", "true if it had ended before: redriven, or sent again"),
)

MINUTES: Final = Columns(
    Column("minute", TIME, "the minute"),
    *_PLACE,
    Column("name", TEXT, "the job's dispatch name"),
    Column("entered", LONG, "jobs or messages that were enqueued"),
    Column("done", LONG, "those that completed"),
    Column("failed", LONG, "runs that raised"),
    Column("retried", LONG, "retries"),
    Column("dead", LONG, "those that were dead-lettered"),
    Column("gone", LONG, "those that ended in any way"),
    Column("emptied", TIME, "when the last of those that were enqueued in this minute ended"),
    Column("carried", LONG, "entered minus gone, of minutes that were deleted"),
    Column("waits", BYTES, "a sketch of wait_ms of those that first ran in this minute"),
    Column("runs", BYTES, "a sketch of run_ms of those that ended in this minute"),
    Column("date", "DATE", "the day"),
)
"""Partial sums of gold; rows of one minute are added."""

GOLD: Final = Columns(
    Column("minute", TIME, "the minute; one in which nothing happened has no row"),
    *_PLACE,
    Column("name", TEXT, "the job's dispatch name; empty where it has none"),
    Column("entered", LONG, "jobs or messages that were enqueued"),
    Column("done", LONG, "those that completed"),
    Column("failed", LONG, "runs that raised"),
    Column("retried", LONG, "retries"),
    Column("dead", LONG, "those that were dead-lettered"),
    Column(
        "backlog",
        LONG,
        "those that were enqueued and have not ended, at the end of the minute; with an empty "
        "name, also those that only the last snapshot of the queue's depth shows",
    ),
    Column(
        "oldest_age_s",
        LONG,
        "age of the oldest of these in seconds, from minute to minute; null if none",
    ),
    Column("wait_p50_ms", LONG, "half of those that first ran in this minute had waited less"),
    Column("wait_p95_ms", LONG, "95 of 100"),
    Column("wait_p99_ms", LONG, "99 of 100"),
    Column("run_p50_ms", LONG, "half of those that ended in this minute had run for less"),
    Column("run_p95_ms", LONG, "95 of 100"),
    Column("run_p99_ms", LONG, "99 of 100"),
)

DEPTHS: Final = Columns(
    Column("at", TIME, "when it was counted"),
    *_PLACE,
    Column("backlog", LONG, "jobs or messages in the queue: waiting, delayed, hidden or being run"),
    Column("followed", BOOL, "whether its events or its journal are read"),
    Column("date", "DATE", "the day"),
)
"""Snapshots of queue depths, one with each batch."""
