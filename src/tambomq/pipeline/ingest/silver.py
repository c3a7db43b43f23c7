"""Silver: one row for each lifecycle of a job or message, folded from its events in bronze.

A *state* is what is known of a lifecycle so far. Each row of bronze becomes a state (`states`), and
states of one job are merged by commutative aggregates (`folded`), so the order does not matter: a
batch is folded into the open states, and bronze is never read again. All expressions are native to
Spark. `tables.STATE` describes each column; they are merged like this::

    min   enqueued_ms  ready_ms  first_run_ms  named       the first that was seen
    max   last_run_ms  final_ms  buried_ms  seen_ms  last  the latest
          ran  why  erred                                  structs of a position and a value,
                                                           so the value of the latest event
          attempts  delay_ms  body_bytes  revived          the largest
    sum   rescheduled  events  born                        counts of events

A *position* orders events of all streams in one number, from the highest bit to the lowest::

    milliseconds of the entry id
     1 bit   0 for journals: a message is journalled before it can run in the same millisecond
    16 bits  sequence number of the entry id
     4 bits  0; in the column ``last``: the phase, so that the maximum has the latest phase
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline.lake import tables

KEYS: Final = ("protocol", "queue", "id")
PHASES: Final = (
    *("", "delayed", "waiting", "sent", "running", "retrying"),
    *("cancelled", "done", "dead", "moved"),
)
"""The index is the phase's number. All from ``cancelled`` on are terminal."""
_FIRST_TERMINAL: Final = PHASES.index("cancelled")
_SENT: Final = PHASES.index("sent")

_PHASE_OF: Final = {
    "delayed": "delayed",
    "waiting": "waiting",
    "active": "running",
    "received": "running",
    "retry-scheduled": "retrying",
    "cancelled": "cancelled",
    "completed": "done",
    "deleted": "done",
    "delivered": "done",
    "dlq": "dead",
    "dead": "dead",
    "moved": "moved",
}
_ENQUEUED_EVENTS: Final = ("sent", "delayed")
"""A producer has added the job."""
_ENTERED_EVENTS: Final = (*_ENQUEUED_EVENTS, "waiting")
"""The job enters the queue: added or redriven. These are the enqueue events of `lifecycles`."""
_RUN_EVENTS: Final = ("active", "received", "delivered")
_ATTEMPT_EVENTS: Final = (*_RUN_EVENTS, "completed", "failed", "dlq", "dead")
_DEAD_EVENTS: Final = ("dlq", "dead")
_KQUEUE: Final = "kqueue"
"""It stores no message, so there are no events after ``sent``."""

_PHASE_BITS, _SEQUENCE_BITS = 4, 16
"""The remaining bits hold milliseconds until the year 2109."""
_MS_SHIFT: Final = _PHASE_BITS + _SEQUENCE_BITS + 1

_MAX_MS: Final = 10**12
"""Thirty years. Larger numbers are damage, and would make sums overflow."""
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BASE32HEX: Final = "0123456789abcdefghijklmnopqrstuv"
_ULID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_ULID_TIME: Final = 10


def states(bronze: DataFrame) -> DataFrame:
    """Return a state for each row of *bronze* that is about a job.

    Adds two columns: ``position``, and ``enters``, which is the same for an event by which the
    job enters the queue, else null.
    """
    event, at_position = F.col("event"), position()
    error = F.when(event == "failed", F.col("reason")).otherwise(F.col("detail"))
    attempt = F.when(event == "delivered", 1).otherwise(F.col("attempt"))
    at, took, is_dead_letter = happened_ms(), F.col("duration_us"), F.col("source") == "dlq"
    of = {
        "named": F.when(
            (F.col("name") != "") & (event != "delivered"),
            _at_position(at_position, "text", F.col("name")),
        ),
        "enqueued_ms": F.when(event.isin(*_ENQUEUED_EVENTS), at),
        "ready_ms": F.when(event == "waiting", at),
        "delay_ms": F.when(F.col("delay_ms") < _MAX_MS, F.col("delay_ms")),
        "first_run_ms": F.when(event.isin(*_RUN_EVENTS), at),
        "last_run_ms": F.when(event.isin(*_RUN_EVENTS), at),
        "final_ms": F.when((_phase() >= _FIRST_TERMINAL) & ~is_dead_letter, at),
        "buried_ms": F.when(is_dead_letter, at),
        "attempts": F.when(event.isin(*_ATTEMPT_EVENTS), attempt),
        "rescheduled": (event == "retry-scheduled").cast("bigint"),
        "last": F.when(_phase() > 0, at_position.bitwiseOR(_phase())),
        "ran": F.when(took < _MAX_MS * 1000, _at_position(at_position, "number", took)),
        "why": F.when(
            event.isin(*_DEAD_EVENTS), _at_position(at_position, "text", F.col("reason"))
        ),
        "erred": F.when(error.isNotNull(), _at_position(at_position, "text", error)),
        "body_bytes": F.length("body").cast("bigint"),
        "events": F.lit(1).cast("bigint"),
        "seen_ms": F.unix_millis("recorded_at"),
        "born": event.isin(*_ENQUEUED_EVENTS).cast("bigint"),
        "revived": F.lit(0).cast("bigint"),
        "position": at_position,
        "enters": F.when(event.isin(*_ENTERED_EVENTS), at_position),
    }
    columns = [column.alias(name) for name, column in of.items()]
    return bronze.select("protocol", "queue", _job_id(), *columns).where("id IS NOT NULL")


def happened_ms() -> Column:
    """Return when the event of a row of bronze happened, else when it was recorded."""
    return F.unix_millis(F.coalesce("at", "recorded_at"))


def folded(found: DataFrame, *more: Column, by: Sequence[str] = KEYS) -> DataFrame:
    """Return one state for each group *by* of the states *found*, with *more* aggregates."""
    aggregates = {
        "named": F.min,
        "enqueued_ms": F.min,
        "ready_ms": F.min,
        "first_run_ms": F.min,
        "rescheduled": F.sum,
        "events": F.sum,
        "born": F.sum,
    }
    names = [column.name for column in tables.STATE if column.name not in KEYS]
    columns = [aggregates.get(name, F.max)(name).alias(name) for name in names]
    return found.groupBy(*by).agg(*columns, *more)


def result_rows(found: DataFrame) -> DataFrame:
    """Return *found*, merged states, as rows of the table silver."""
    enqueued, finished = F.timestamp_millis(_enqueued()), F.timestamp_millis(ended_ms())
    return found.select(
        *KEYS,
        F.coalesce("named.text", F.lit("")).alias("name"),
        enqueued.alias("enqueued_at"),
        "delay_ms",
        F.timestamp_millis(first_run_ms()).alias("first_run_at"),
        F.timestamp_millis(F.coalesce("last_run_ms", first_run_ms())).alias("last_run_at"),
        finished.alias("finished_at"),
        F.coalesce("attempts", F.lit(0)).alias("attempts"),
        F.greatest("rescheduled", F.coalesce("attempts", F.lit(1)) - 1, F.lit(0)).alias("retries"),
        outcome().alias("outcome"),
        wait_ms().alias("wait_ms"),
        run_ms().alias("run_ms"),
        F.when(outcome() == "dead", F.col("why.text")).alias("reason"),
        F.col("erred.text").alias("error"),
        "body_bytes",
        "events",
        _is_revived().alias("revived"),
    ).select(*(column.name for column in tables.SILVER))


def outcome() -> Column:
    """Return the outcome of a state."""
    words = F.array(*(F.lit(phase) for phase in PHASES))
    phase = F.coalesce(F.get(words, _last_phase().cast("int")), F.lit(""))
    ran = F.coalesce("attempts", F.lit(0)) > 0
    return (
        F.when(ran & phase.isin("waiting", "delayed"), "retrying")
        .when(phase == "", F.when(ran, "running").otherwise("waiting"))
        .otherwise(phase)
    )


def ended_ms() -> Column:
    """Return when a lifecycle ended; null while it has not."""
    # Prefer the worker's event, which has the clock of the other events, to the dead letter's.
    ended = F.when(has_ended(), F.coalesce("final_ms", "buried_ms"))
    # KqueueMsgQ keeps no message: its lifecycle ends when it is sent.
    is_sent = (F.col("protocol") == _KQUEUE) & (_last_phase() == _SENT)
    return ended.when(is_sent, F.col("enqueued_ms"))


def entered_ms() -> Column:
    """Return when a lifecycle began: its first known time."""
    return F.coalesce(_enqueued(), first_run_ms(), ended_ms(), F.col("seen_ms"))


def wait_ms() -> Column:
    """Return the time from when a job was ready (after its delay) to its first run."""
    ready = _enqueued() + F.coalesce("delay_ms", F.lit(0))
    waited = first_run_ms() - ready
    return F.when(waited >= 0, waited).when(waited < 0, 0)


def run_ms() -> Column:
    """Return how long the last run took."""
    measured = (F.col("ran.number") / 1000).cast("bigint")
    # RSMQ has no durations: a run lasts from the receive to the delete.
    is_rsmq_run = (F.col("protocol") == "rsmq") & (outcome() != "moved")
    between = F.when(is_rsmq_run, ended_ms() - F.col("last_run_ms"))
    return F.coalesce(measured, between)


def is_new_since(ms: Column) -> Column:
    """Whether a lifecycle began after *ms*, so that no closed lifecycle of its job has its rows.

    By the time in the job's id, if that is a ULID; else by an enqueue event among the rows.
    """
    return F.coalesce(_id_ms() > ms, F.col("born") > 0)


def has_ended() -> Column:
    """Whether the latest event of a state is terminal."""
    return _last_phase() >= _FIRST_TERMINAL


def ended_or_seen_ms() -> Column:
    """Return when a lifecycle ended, else the time of its last event."""
    return F.coalesce(ended_ms(), F.col("seen_ms"))


def position() -> Column:
    """Return the position of a row of bronze, with the phase bits 0: see the module's docstring."""
    numbers = F.split("entry_id", "-")
    sequence = F.coalesce(F.try_element_at(numbers, F.lit(2)).try_cast("bigint"), F.lit(0))
    ms = F.coalesce(numbers[0].try_cast("bigint"), F.lit(0))
    from_journal = F.when(F.col("source") == "journal", 0).otherwise(1 << _SEQUENCE_BITS)
    within = F.least(sequence, F.lit((1 << _SEQUENCE_BITS) - 1))
    # Bits instead of sums: an explicit entry id may have any number, and sums would overflow.
    return F.shiftleft(ms, _MS_SHIFT).bitwiseOR(F.shiftleft(from_journal + within, _PHASE_BITS))


def _job_id() -> Column:
    # Messages of KqueueMsgQ have no ids, and one event each: the entry id identifies them.
    is_own = (F.col("protocol") == _KQUEUE) & (F.col("event") == "sent")
    return F.coalesce("id", F.when(is_own, F.col("entry_id"))).alias("id")


def _phase() -> Column:
    event = F.col("event")
    stored = F.when(F.coalesce("delay_ms", F.lit(0)) > 0, PHASES.index("delayed")).otherwise(
        PHASES.index("waiting")
    )
    sent = F.when((F.col("protocol") == _KQUEUE), _SENT).otherwise(stored)
    phase = reduce(
        lambda chain, pair: chain.when(event == pair[0], PHASES.index(pair[1])),
        _PHASE_OF.items(),
        F.when(event == "sent", sent),
    )
    return phase.otherwise(0).cast("bigint")


def _is_revived() -> Column:
    return F.coalesce(F.col("revived") > 0, F.expr("false"))


def _last_phase() -> Column:
    return F.coalesce(F.col("last").bitwiseAND((1 << _PHASE_BITS) - 1), F.lit(0))


def _at_position(position: Column, kind: str, value: Column) -> Column:
    # Compared by its first field. Files in the lake have it: its name cannot change.
    return F.struct(position.alias("place"), value.alias(kind))


def _enqueued() -> Column:
    # A job also waits before a retry: ``waiting`` counts only up to the first run.
    first = F.coalesce(first_run_ms(), F.col("ready_ms"))
    ready = F.when(F.col("ready_ms") <= first, F.col("ready_ms"))
    # A ULID has the time of the first lifecycle only.
    return F.least("enqueued_ms", F.when(~_is_revived(), _id_ms()), ready)


def first_run_ms() -> Column:
    """Return when a lifecycle's first run began."""
    # Without an event for the start: the end less the duration.
    began = F.col("final_ms") - (F.col("ran.number") / 1000).cast("bigint")
    return F.coalesce("first_run_ms", began)


def _id_ms() -> Column:
    """Return when a job of ChasquiMQ was created, by its id if that is a ULID."""
    digits = F.translate(F.substring("id", 1, _ULID_TIME), _CROCKFORD, _BASE32HEX)
    ms = F.conv(digits, 32, 10).try_cast("bigint")
    is_one = (F.col("protocol") == "chasqui") & F.col("id").rlike(_ULID)
    return F.when(is_one & (ms <= F.col("seen_ms")), ms)
