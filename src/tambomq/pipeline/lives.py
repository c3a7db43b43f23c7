"""Which rows tell of which life. Who comes in again after its end begins another one.

So a dead job that is redriven and an id that is used again are told apart, however soon it happens.
For that, all that was told of a job is put in order, which most jobs do not need: lives are folded
as if each job had one, and only those that came back are looked at once more.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline import silver, tables

FOLDED: Final = f"{tables.STATE.ddl}, known BOOLEAN, newer BOOLEAN, entered BIGINT, ended BIGINT"
"""The columns of `folded`."""
DOUBTS: Final = ", ".join((*(f"{name} STRING" for name in silver.KEYS), "upto BIGINT"))
"""The columns of `doubts`."""
_ALL: Final = (1 << 63) - 1
_NONE: Final = -1


def parts(before: DataFrame, fresh: DataFrame) -> DataFrame:
    """Return what there is to fold: states that were open *before*, and those of *fresh* rows."""
    open_ones = before.select(
        "*",
        F.col("last").alias("place"),
        F.lit(None).cast("bigint").alias("enters"),
        F.expr("true").alias("known"),
    )
    return open_ones.unionByName(silver.states(fresh).withColumn("known", F.expr("false")))


def folded(found: DataFrame) -> DataFrame:
    """Return the lives that *found* comes to: parts, or what `told_apart` makes of them."""
    if "life" not in found.columns:
        found = found.select("*", F.lit(0).alias("life"), F.expr("false").alias("newer"))
    states = silver.folded(
        found,
        F.max("known").alias("known"),
        F.max("newer").alias("newer"),
        F.max("enters").alias("entered"),
        F.min(_ending()).alias("ended"),
        by=(*silver.KEYS, "life"),
    )
    return states.drop("life")


def came_back() -> Column:
    """Whether what was folded came in after an end, and so is more than one life."""
    return F.coalesce(F.col("entered") > F.col("ended"), F.expr("false"))


def doubts(lives: DataFrame, closed: DataFrame, is_stranger: Column) -> DataFrame:
    """Return the jobs among *lives* that need a second look, and up to where it is late for them.

    Of those that were *closed* before, what is told of after their end is a new life from when they
    came in again; without that it is only late.
    """
    over = closed.groupBy(*silver.KEYS).agg(F.max("last").alias("over"))
    found = lives.where(came_back() | is_stranger).join(over, [*silver.KEYS], "left")
    again = F.col("entered") > F.col("over")
    upto = F.when(
        is_stranger & F.col("over").isNotNull(), F.when(again, F.col("over")).otherwise(_ALL)
    ).otherwise(_NONE)
    asked = found.select(*silver.KEYS, upto.alias("upto"), came_back().alias("back"))
    return asked.where((F.col("upto") != _NONE) | F.col("back")).drop("back")


def told_apart(found: DataFrame, doubted: DataFrame) -> DataFrame:
    """Return parts with the number of the life they belong to, without those that are late."""
    keys = [*silver.KEYS]
    sure = found.join(doubted, keys, "left_anti")
    sure = sure.select("*", F.lit(0).alias("life"), F.expr("false").alias("newer"))
    unsure = found.join(doubted, keys).where(F.col("known") | (F.col("place") > F.col("upto")))
    before = _in_order().rowsBetween(Window.unboundedPreceding, -1)
    ended = F.coalesce(F.max(_ending()).over(before), F.lit(0))
    entered = F.coalesce(F.max("enters").over(before), F.lit(0))
    begins = F.col("enters").isNotNull() & (ended > entered)
    so_far = _in_order().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    life = F.sum(F.col("begins").cast("int")).over(so_far)
    latest = F.max("life").over(Window.partitionBy(*keys))
    numbered = unsure.withColumn("begins", begins).withColumn("life", life)
    revived = (F.col("life") > 0) | (F.col("upto") != _NONE)
    return sure.unionByName(
        numbered.withColumn("newer", F.col("life") < latest)
        .withColumn("revived", F.greatest("revived", revived.cast("bigint")))
        .drop("begins", "upto")
    )


def late(fresh: DataFrame, doubted: DataFrame) -> DataFrame:
    """Return the rows among *fresh* that are about lives which were closed before."""
    of = doubted.where(F.col("upto") != _NONE)
    found = fresh.withColumn("place", silver.place()).join(of, [*silver.KEYS])
    return found.where("place <= upto").select(fresh.columns)


def _ending() -> Column:
    return F.when(silver.has_ended(), F.col("last"))


def _in_order() -> WindowSpec:
    return Window.partitionBy(*silver.KEYS).orderBy("place")
