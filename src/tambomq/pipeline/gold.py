"""What happened in each minute, by queue and name: partial sums that are added up when read.

A life counts when it is closed, once, with what became of it; what is open is counted by whoever
reads, so that gold is always exact. Failures and retries count when they are told. Percentiles are
those of KLL sketches (k = 200): of 100 ranks they are off by 1.33 at most, 99 times of 100.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline import silver, tables

WHERE: Final = ("protocol", "queue", "name")
KEYS: Final = ("minute", *WHERE)
COUNTS: Final = ("entered", "done", "failed", "retried", "dead", "gone", "carried")
_NEVER_MS: Final = 253_402_300_740_000
"""The last minute that Spark can show."""
_RANKS: Final = (0.5, 0.95, 0.99)


def of_lives(states: DataFrame, *, closed: bool) -> DataFrame:
    """Return what each of *states* adds to which minutes; those that are *closed* are gone."""
    over = silver.died_ms() if closed else silver.finished_ms()
    entered = silver.entered_ms()
    ended = F.greatest(over, F.when(over.isNotNull(), entered))
    outcome = silver.outcome()
    parts = F.array(
        _part(entered, entered=F.lit(1), emptied=F.coalesce(ended, F.lit(_NEVER_MS))),
        _part(silver.first_run_ms(), wait=silver.wait_ms()),
        _part(
            ended,
            gone=F.lit(1),
            done=(outcome == "done").cast("int"),
            dead=(outcome == "dead").cast("int"),
            run=silver.run_ms(),
        ),
    )
    name = F.coalesce("named.text", F.lit("")).alias("name")
    found = states.select("protocol", "queue", name, F.explode(parts).alias("part"))
    return found.select(*WHERE, "part.*").where("ms IS NOT NULL")


def of_runs(bronze: DataFrame) -> DataFrame:
    """Return what runs that failed or are to follow add to which minutes."""
    again = (F.col("event") == "retry-scheduled") | (
        (F.col("event") == "received") & (F.col("attempt") > 1)
    )
    part = _part(
        silver.told_ms(),
        failed=(F.col("event") == "failed").cast("int"),
        retried=again.cast("int"),
    )
    name = F.coalesce("name", F.lit("")).alias("name")
    found = bronze.where((F.col("event") == "failed") | again)
    parts = found.select("protocol", "queue", name, part.alias("part")).select(*WHERE, "part.*")
    return parts.where("ms IS NOT NULL")


def summed(parts: DataFrame) -> DataFrame:
    """Return rows of `tables.MINUTES`: one for each minute, queue and name of *parts*."""
    found = (
        parts.withColumn("minute", F.timestamp_millis(_minute(F.col("ms"))))
        .groupBy(*KEYS)
        .agg(
            *(F.sum(name).alias(name) for name in COUNTS),
            F.timestamp_millis(F.max(_minute(F.col("emptied")))).alias("emptied"),
            F.kll_sketch_agg_bigint("wait").alias("waits"),
            F.kll_sketch_agg_bigint("run").alias("runs"),
        )
    )
    return _in_order(found)


def merged(minutes: DataFrame) -> DataFrame:
    """Return *minutes* with one row where there were several."""
    found = minutes.groupBy(*KEYS).agg(
        *(F.sum(name).alias(name) for name in COUNTS),
        F.max("emptied").alias("emptied"),
        F.kll_merge_agg_bigint("waits").alias("waits"),
        F.kll_merge_agg_bigint("runs").alias("runs"),
    )
    return _in_order(found)


def shown(minutes: DataFrame, live: DataFrame) -> DataFrame:
    """Return the rows of gold: *minutes*, and the states that are *live*, added up."""
    found = merged(minutes.unionByName(summed(of_lives(live, closed=False))))
    so_far = _over().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    left = F.sum(F.col("entered") - F.col("gone") + F.col("carried")).over(so_far)
    counted = _with_oldest(found).withColumn("backlog", left)
    waits, runs = _quantiles("waits"), _quantiles("runs")
    percentiles = [
        column[place].alias(f"{what}_p{round(rank * 100)}_ms")
        for what, column in (("wait", waits), ("run", runs))
        for place, rank in enumerate(_RANKS)
    ]
    names = [column.name for column in tables.GOLD if not column.name.endswith("_ms")]
    # What was only carried over from days that were let go is in no minute.
    happened = F.col("entered") + F.col("failed") + F.col("retried") + F.col("gone")
    is_row = (happened > 0) | (F.kll_sketch_get_n_bigint("waits") > 0)
    return counted.where(is_row).select(*names, *percentiles)


def _with_oldest(found: DataFrame) -> DataFrame:
    """Add how old the oldest was that had not ended at the end of each minute.

    Those that came in within a minute are the oldest from when the last of all before them has
    ended, until the last of them has. So each minute has at most one such group, and one pass in
    order of time finds it.
    """
    before = _over().rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.max("emptied").over(before)
    since = F.greatest("minute", earlier)
    groups = (
        found.where("entered > 0")
        .withColumn("since", since)
        .where("since < emptied")
        .select(
            *WHERE,
            F.col("since").alias("minute"),
            F.struct("minute", "emptied").alias("oldest"),
            F.expr("false").alias("is_row"),
        )
    )
    rows = found.withColumn("is_row", F.expr("true"))
    so_far = _over().rangeBetween(Window.unboundedPreceding, Window.currentRow)
    oldest = F.last("oldest", ignorenulls=True).over(so_far)
    age = F.unix_seconds("minute") - F.unix_seconds(F.col("oldest.minute"))
    return (
        rows.unionByName(groups, allowMissingColumns=True)
        .withColumn("oldest", oldest)
        .where("is_row")
        .withColumn("oldest_age_s", F.when(F.col("minute") < F.col("oldest.emptied"), age))
        .drop("oldest", "is_row")
    )


def _over() -> WindowSpec:
    return Window.partitionBy(*WHERE).orderBy("minute")


def _part(ms: Column, **given: Column) -> Column:
    values = {name: F.lit(0) for name in COUNTS}
    values |= {name: F.lit(None) for name in ("emptied", "wait", "run")}
    values |= given
    fields = [column.cast("bigint").alias(name) for name, column in values.items()]
    return F.struct(ms.cast("bigint").alias("ms"), *fields)


def _minute(ms: Column) -> Column:
    return F.floor(ms / 60_000) * 60_000


def _in_order(found: DataFrame) -> DataFrame:
    dated = found.withColumn("date", F.to_date("minute"))
    return dated.select(*(column.name for column in tables.MINUTES))


def _quantiles(sketch: str) -> Column:
    ranks = F.array(*map(F.lit, _RANKS))
    # An empty sketch has no quantiles, and says so by failing.
    has_some = F.kll_sketch_get_n_bigint(sketch) > 0
    return F.when(has_some, F.kll_sketch_get_quantile_bigint(sketch, ranks))
