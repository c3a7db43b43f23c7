"""Splits a job's events into lifecycles. An enqueue event after a terminal event starts a new one.

So a dead job that was redriven, or an id that was reused, has a row for each of its lifecycles.
Splitting needs the events of a job in order, which is expensive and rarely needed. So states are
first folded as if each job had one lifecycle (`folded`); only jobs that entered again after an end,
or may have a lifecycle that is closed, are *ambiguous* and split (`ambiguous_jobs`,
`split_lifecycles`).

Columns beside those of `tables.STATE`::

    position    the order of the event (see `silver`)
    enters      the position of the event if it is an enqueue event, else null
    was_open    whether the state comes from an earlier batch
    lifecycle   number of the lifecycle within the batch
    superseded  whether the same job has a later lifecycle
    last_entry  position of the last enqueue event
    first_end   position of the first terminal event
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
_ALL_LATE: Final = (1 << 63) - 1
"""All rows of the job are about a closed lifecycle."""
_NONE_CLOSED: Final = -1
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

    Rows up to that position belong to a lifecycle that is *closed* already, and are late. If the
    job was enqueued again since, the position is the end of that lifecycle; if not, it is beyond
    any row: all rows of the job are late.
    An example: a job ended at 70, which is closed, and this batch has events at 65 and 90. If the
    one at 90 is an enqueue event, ``closed_up_to`` is 70: 65 is late, and 90 begins a lifecycle.
    If it is another one, both are late.
    """
    last_closed = closed.groupBy(*silver.KEYS).agg(F.max("last").alias("closed_end"))
    maybe_split = states.where(reentered() | maybe_closed_before)
    found = maybe_split.join(last_closed, [*silver.KEYS], "left")
    closed_end = F.col("closed_end")
    closed_up_to = F.when(
        maybe_closed_before & closed_end.isNotNull(),
        F.when(F.col("last_entry") > closed_end, closed_end).otherwise(_ALL_LATE),
    ).otherwise(_NONE_CLOSED)
    candidates = found.select(
        *silver.KEYS, closed_up_to.alias("closed_up_to"), reentered().alias("is_split")
    )
    return candidates.where((F.col("closed_up_to") != _NONE_CLOSED) | F.col("is_split")).drop(
        "is_split"
    )


def split_lifecycles(found: DataFrame, ambiguous: DataFrame) -> DataFrame:
    """Return *found* (see `states_to_fold`) with lifecycle numbers and without late rows."""
    keys = [*silver.KEYS]
    others = found.join(ambiguous, keys, "left_anti")
    others = others.select("*", F.lit(0).alias("lifecycle"), F.expr("false").alias("superseded"))
    to_split = found.join(ambiguous, keys).where(
        F.col("was_open") | (F.col("position") > F.col("closed_up_to"))
    )
    before = _by_position().rowsBetween(Window.unboundedPreceding, -1)
    ended = F.coalesce(F.max(_end_position()).over(before), F.lit(0))
    entered = F.coalesce(F.max("enters").over(before), F.lit(0))
    begins = F.col("enters").isNotNull() & (ended > entered)
    so_far = _by_position().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lifecycle = F.sum(F.col("begins").cast("int")).over(so_far)
    latest = F.max("lifecycle").over(Window.partitionBy(*keys))
    numbered = to_split.withColumn("begins", begins).withColumn("lifecycle", lifecycle)
    revived = (F.col("lifecycle") > 0) | (F.col("closed_up_to") != _NONE_CLOSED)
    return others.unionByName(
        numbered.withColumn("superseded", F.col("lifecycle") < latest)
        .withColumn("revived", F.greatest("revived", revived.cast("bigint")))
        .drop("begins", "closed_up_to")
    )


def late_rows(fresh: DataFrame, ambiguous: DataFrame) -> DataFrame:
    """Return the rows among *fresh* that are about lifecycles which are closed already."""
    closed = ambiguous.where(F.col("closed_up_to") != _NONE_CLOSED)
    found = fresh.withColumn("position", silver.position()).join(closed, [*silver.KEYS])
    return found.where("position <= closed_up_to").select(fresh.columns)


def _end_position() -> Column:
    """Return the position of a state's last event if that is terminal."""
    return F.when(silver.has_ended(), F.col("last"))


def _by_position() -> WindowSpec:
    return Window.partitionBy(*silver.KEYS).orderBy("position")
