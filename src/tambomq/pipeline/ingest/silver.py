"""One row for each job or message, folded from what bronze has of it. Native to Spark throughout.

A *state* is what is known of a life so far (see `tables.STATE`). Each row of bronze is one, and any
number of states of one job make one again, in any order: so a batch is folded into what was open
before, and nothing has to be read twice.

`last` has in one number when something was told and which phase that was, so that the largest is
the latest: milliseconds, a bit that is 0 for journals (what is sent is told of before it runs,
within the same millisecond), the place within the millisecond, and the phase in the lowest 4 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline import tables

KEYS: Final = ("protocol", "queue", "id")
PHASES: Final = (
    *("", "delayed", "waiting", "sent", "running", "retrying"),
    *("cancelled", "done", "dead", "moved"),
)
"""In the order of their numbers; from the first that ends a life on, all do."""
_ENDS: Final = PHASES.index("cancelled")
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
_BIRTHS: Final = ("sent", "delayed")
_ENTRIES: Final = (*_BIRTHS, "waiting")
_RUNS: Final = ("active", "received", "delivered")
_COUNTS_RUNS: Final = (*_RUNS, "completed", "failed", "dlq", "dead")
_DEATHS: Final = ("dlq", "dead")
_UNKEPT: Final = "kqueue"
"""The protocol that does not tell what becomes of a message."""

_PHASE_BITS, _SEQUENCE_BITS = 4, 16
"""So there is room for times up to 2109."""
_MS_SHIFT: Final = _PHASE_BITS + _SEQUENCE_BITS + 1

_LONGEST_MS: Final = 10**12
"""Thirty years. Numbers beyond are nobody's, and must not make sums overflow."""
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BASE32HEX: Final = "0123456789abcdefghijklmnopqrstuv"
_ULID: Final = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
_ULID_TIME: Final = 10


def states(bronze: DataFrame) -> DataFrame:
    """Return a state for each row of *bronze* that is about a job.

    Besides there are its `place`, and the same as `enters` if it tells that a job came in.
    """
    event, told_at = F.col("event"), place()
    error = F.when(event == "failed", F.col("reason")).otherwise(F.col("detail"))
    attempt = F.when(event == "delivered", 1).otherwise(F.col("attempt"))
    at, took, is_letter = told_ms(), F.col("duration_us"), F.col("source") == "dlq"
    of = {
        "named": F.when(
            (F.col("name") != "") & (event != "delivered"), _told(told_at, "text", F.col("name"))
        ),
        "enqueued_ms": F.when(event.isin(*_BIRTHS), at),
        "ready_ms": F.when(event == "waiting", at),
        "delay_ms": F.when(F.col("delay_ms") < _LONGEST_MS, F.col("delay_ms")),
        "first_run_ms": F.when(event.isin(*_RUNS), at),
        "last_run_ms": F.when(event.isin(*_RUNS), at),
        "final_ms": F.when((_phase() >= _ENDS) & ~is_letter, at),
        "buried_ms": F.when(is_letter, at),
        "attempts": F.when(event.isin(*_COUNTS_RUNS), attempt),
        "rescheduled": (event == "retry-scheduled").cast("bigint"),
        "last": F.when(_phase() > 0, told_at.bitwiseOR(_phase())),
        "ran": F.when(took < _LONGEST_MS * 1000, _told(told_at, "number", took)),
        "why": F.when(event.isin(*_DEATHS), _told(told_at, "text", F.col("reason"))),
        "erred": F.when(error.isNotNull(), _told(told_at, "text", error)),
        "body_bytes": F.length("body").cast("bigint"),
        "events": F.lit(1).cast("bigint"),
        "seen_ms": F.unix_millis("recorded_at"),
        "born": event.isin(*_BIRTHS).cast("bigint"),
        "revived": F.lit(0).cast("bigint"),
        "place": told_at,
        "enters": F.when(event.isin(*_ENTRIES), told_at),
    }
    columns = [column.alias(name) for name, column in of.items()]
    # Messages of KqueueMsgQ have no ids; each is told of once.
    is_own = (F.col("protocol") == _UNKEPT) & (event == "sent")
    id = F.coalesce("id", F.when(is_own, F.col("entry_id"))).alias("id")
    named = bronze.select("protocol", "queue", id, *columns)
    return named.where("id IS NOT NULL")


def told_ms() -> Column:
    """Return when what a row of bronze tells happened; when it was recorded if nobody knows."""
    return F.unix_millis(F.coalesce("at", "recorded_at"))


def folded(parts: DataFrame, *more: Column, by: Sequence[str] = KEYS) -> DataFrame:
    """Return one state for each job of *parts*, and *more* that is aggregated over them."""
    how = {
        "named": F.min,
        "enqueued_ms": F.min,
        "ready_ms": F.min,
        "first_run_ms": F.min,
        "rescheduled": F.sum,
        "events": F.sum,
        "born": F.sum,
    }
    names = [column.name for column in tables.STATE if column.name not in KEYS]
    columns = [how.get(name, F.max)(name).alias(name) for name in names]
    return parts.groupBy(*by).agg(*columns, *more)


def shown(found: DataFrame) -> DataFrame:
    """Return the rows of silver that *found*, whole states, come to."""
    enqueued, finished = F.timestamp_millis(_enqueued()), F.timestamp_millis(finished_ms())
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
    told = F.coalesce(F.get(words, _last_phase().cast("int")), F.lit(""))
    ran = F.coalesce("attempts", F.lit(0)) > 0
    return (
        F.when(ran & told.isin("waiting", "delayed"), "retrying")
        .when(told == "", F.when(ran, "running").otherwise("waiting"))
        .otherwise(told)
    )


def finished_ms() -> Column:
    """Return when a state's life ended; null while it has not."""
    # A letter has the time of Redis, an event that of the worker, as all other events.
    ended = F.when(has_ended(), F.coalesce("final_ms", "buried_ms"))
    # A message of KqueueMsgQ is gone the moment it is sent.
    gone = (F.col("protocol") == _UNKEPT) & (_last_phase() == _SENT)
    return ended.when(gone, F.col("enqueued_ms"))


def entered_ms() -> Column:
    """Return when a state's life began, as far as anybody knows."""
    return F.coalesce(_enqueued(), first_run_ms(), finished_ms(), F.col("seen_ms"))


def wait_ms() -> Column:
    """Return how long a state waited for its first run once it could have one."""
    ready = _enqueued() + F.coalesce("delay_ms", F.lit(0))
    waited = first_run_ms() - ready
    return F.when(waited >= 0, waited).when(waited < 0, 0)


def run_ms() -> Column:
    """Return how long a state's last run took."""
    told = (F.col("ran.number") / 1000).cast("bigint")
    # RSMQ tells only when a message was received and when it was deleted.
    is_told = (F.col("protocol") == "rsmq") & (outcome() != "moved")
    between = F.when(is_told, finished_ms() - F.col("last_run_ms"))
    return F.coalesce(told, between)


def is_new_since(ms: Column) -> Column:
    """Whether a state's life surely began after *ms*, and was not closed before."""
    return F.coalesce(_id_ms() > ms, F.col("born") > 0)


def has_ended() -> Column:
    """Whether the last that was told of a state is that its life is over."""
    return _last_phase() >= _ENDS


def died_ms() -> Column:
    """Return when a state's life was over, or nothing more was heard of it."""
    return F.coalesce(finished_ms(), F.col("seen_ms"))


def place() -> Column:
    """Return when a row of bronze was told, as a number: see `last` above."""
    parts = F.split("entry_id", "-")
    sequence = F.coalesce(F.try_element_at(parts, F.lit(2)).try_cast("bigint"), F.lit(0))
    ms = F.coalesce(parts[0].try_cast("bigint"), F.lit(0))
    from_journal = F.when(F.col("source") == "journal", 0).otherwise(1 << _SEQUENCE_BITS)
    within = F.least(sequence, F.lit((1 << _SEQUENCE_BITS) - 1))
    # Bits, not sums: an id that somebody made up may have any number in it.
    return F.shiftleft(ms, _MS_SHIFT).bitwiseOR(F.shiftleft(from_journal + within, _PHASE_BITS))


def _phase() -> Column:
    event = F.col("event")
    kept = F.when(F.coalesce("delay_ms", F.lit(0)) > 0, PHASES.index("delayed")).otherwise(
        PHASES.index("waiting")
    )
    sent = F.when((F.col("protocol") == _UNKEPT), _SENT).otherwise(kept)
    told = reduce(
        lambda chain, pair: chain.when(event == pair[0], PHASES.index(pair[1])),
        _PHASE_OF.items(),
        F.when(event == "sent", sent),
    )
    return told.otherwise(0).cast("bigint")


def _is_revived() -> Column:
    return F.coalesce(F.col("revived") > 0, F.expr("false"))


def _last_phase() -> Column:
    return F.coalesce(F.col("last").bitwiseAND((1 << _PHASE_BITS) - 1), F.lit(0))


def _told(place: Column, kind: str, value: Column) -> Column:
    return F.struct(place.alias("place"), value.alias(kind))


def _enqueued() -> Column:
    # It waits for its second run too; only what was told before the first is a beginning.
    first = F.coalesce(first_run_ms(), F.col("ready_ms"))
    ready = F.when(F.col("ready_ms") <= first, F.col("ready_ms"))
    # An id is as old as the first of its lives.
    return F.least("enqueued_ms", F.when(~_is_revived(), _id_ms()), ready)


def first_run_ms() -> Column:
    """Return when a state first ran."""
    # Where nobody told that it began: it ended, and how long it took.
    began = F.col("final_ms") - (F.col("ran.number") / 1000).cast("bigint")
    return F.coalesce("first_run_ms", began)


def _id_ms() -> Column:
    """Return when a job of ChasquiMQ was made, as its id says if it is a ULID."""
    digits = F.translate(F.substring("id", 1, _ULID_TIME), _CROCKFORD, _BASE32HEX)
    ms = F.conv(digits, 32, 10).try_cast("bigint")
    is_one = (F.col("protocol") == "chasqui") & F.col("id").rlike(_ULID)
    return F.when(is_one & (ms <= F.col("seen_ms")), ms)
