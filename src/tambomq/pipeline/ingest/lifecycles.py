"""Splits a job's events into lifecycles. An enqueue event after a terminal event starts a new one.

So a dead job that was redriven, or an id that was used again, has a row for each of its lifecycles.
Splitting needs the events of a job in order, which is expensive and rarely needed. So states are
first folded as if each job had one lifecycle (`folded`); only jobs that entered again after an end,
or may have a lifecycle that is closed, are split (`ambiguous_jobs`, `split_lifecycles`).

Columns beside those of `tables.STATE`: ``position``, the order of the event (see `silver`);
``enters``, the same for events by which a job enters the queue; ``was_open``, true for states of
earlier batches; ``lifecycle``, the number of the lifecycle within the batch; ``superseded``, true
if the same job has a later one; ``last_entry`` and ``first_end``, the positions of its last event
by which it entered and of its first terminal one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline.ingest import silver
from tambomq.pipeline.lake import tables

FOLDED: Final = (
    f"{tables.STATE.ddl}, was_open BOOLEAN, superseded BOOLEAN, last_entry BIGINT, first_end BIGINT"
)
"""The columns of `folded`."""
AMBIGUOUS: Final = ", ".join((*(f"{name} STRING" for name in silver.KEYS), "closed_up_to BIGINT"))
"""The columns of `ambiguous_jobs`."""
_EVERYTHING: Final = (1 << 63) - 1
"""All rows of the job are about a closed lifecycle."""
_NOTHING: Final = -1
"""The job has no closed lifecycle."""


def states_to_fold(before: DataFrame, fresh: DataFrame) -> DataFrame:
    """Return the states to fold: those open *before* the batch, and those of *fresh* rows."""
    open_ones = before.select(
        "*",
        F.col("last").alias("position"),
        F.lit(None).cast("bigint").alias("enters"),
        F.expr("true").alias("was_open"),
    )
    return open_ones.unionByName(silver.states(fresh).withColumn("was_open", F.expr("false")))


def folded(found: DataFrame) -> DataFrame:
    """Return one state for each lifecycle of *found*: `states_to_fold`, split or not."""
    if "lifecycle" not in found.columns:
        found = found.select("*", F.lit(0).alias("lifecycle"), F.expr("false").alias("superseded"))
    states = silver.folded(
        found,
        F.max("was_open").alias("was_open"),
        F.max("superseded").alias("superseded"),
        F.max("enters").alias("last_entry"),
        F.min(_end_position()).alias("first_end"),
        by=(*silver.KEYS, "lifecycle"),
    )
    return states.drop("lifecycle")


def reentered() -> Column:
    """Whether a folded state has an enqueue event after a terminal one: two lifecycles or more."""
    return F.coalesce(F.col("last_entry") > F.col("first_end"), F.expr("false"))


def ambiguous_jobs(states: DataFrame, closed: DataFrame, maybe_closed_before: Column) -> DataFrame:
    """Return the jobs among *states* whose rows must be split, with ``closed_up_to`` for each.

    That is the position up to which its rows belong to a lifecycle that is *closed* already: up to
    that lifecycle's end if the job has entered again since, else all rows, which are late then.
    """
    last_closed = closed.groupBy(*silver.KEYS).agg(F.max("last").alias("closed_end"))
    doubtful = states.where(reentered() | maybe_closed_before)
    found = doubtful.join(last_closed, [*silver.KEYS], "left")
    closed_end = F.col("closed_end")
    closed_up_to = F.when(
        maybe_closed_before & closed_end.isNotNull(),
        F.when(F.col("last_entry") > closed_end, closed_end).otherwise(_EVERYTHING),
    ).otherwise(_NOTHING)
    asked = found.select(
        *silver.KEYS, closed_up_to.alias("closed_up_to"), reentered().alias("is_split")
    )
    return asked.where((F.col("closed_up_to") != _NOTHING) | F.col("is_split")).drop("is_split")


def split_lifecycles(found: DataFrame, ambiguous: DataFrame) -> DataFrame:
    """Return *found*, `states_to_fold`, with numbers of lifecycles and without late rows."""
    keys = [*silver.KEYS]
    sure = found.join(ambiguous, keys, "left_anti")
    sure = sure.select("*", F.lit(0).alias("lifecycle"), F.expr("false").alias("superseded"))
    unsure = found.join(ambiguous, keys).where(
        F.col("was_open") | (F.col("position") > F.col("closed_up_to"))
    )
    before = _by_position().rowsBetween(Window.unboundedPreceding, -1)
    ended = F.coalesce(F.max(_end_position()).over(before), F.lit(0))
    entered = F.coalesce(F.max("enters").over(before), F.lit(0))
    begins = F.col("enters").isNotNull() & (ended > entered)
    so_far = _by_position().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lifecycle = F.sum(F.col("begins").cast("int")).over(so_far)
    latest = F.max("lifecycle").over(Window.partitionBy(*keys))
    numbered = unsure.withColumn("begins", begins).withColumn("lifecycle", lifecycle)
    revived = (F.col("lifecycle") > 0) | (F.col("closed_up_to") != _NOTHING)
    return sure.unionByName(
        numbered.withColumn("superseded", F.col("lifecycle") < latest)
        .withColumn("revived", F.greatest("revived", revived.cast("bigint")))
        .drop("begins", "closed_up_to")
    )


def late_rows(fresh: DataFrame, ambiguous: DataFrame) -> DataFrame:
    """Return the rows among *fresh* that are about lifecycles which are closed already."""
    closed = ambiguous.where(F.col("closed_up_to") != _NOTHING)
    found = fresh.withColumn("position", silver.position()).join(closed, [*silver.KEYS])
    return found.where("position <= closed_up_to").select(fresh.columns)


def _end_position() -> Column:
    """Return the position of a state's last event if that is terminal."""
    return F.when(silver.has_ended(), F.col("last"))


def _by_position() -> WindowSpec:
    return Window.partitionBy(*silver.KEYS).orderBy("position")
