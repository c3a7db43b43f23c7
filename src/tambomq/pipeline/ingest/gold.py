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


def shown(minutes: DataFrame, live: DataFrame, depths: DataFrame | None = None) -> DataFrame:
    """Return the rows of gold: *minutes*, and the states that are *live*, added up.

    *depths* say what was in the queues that nobody told of: it counts as jobs without a name.
    """
    found = merged(minutes.unionByName(summed(of_lives(live, closed=False))))
    left = F.sum(_grown()).over(_so_far())
    counted = _with_oldest(found).withColumn("backlog", left)
    if depths is not None:
        counted = _with_depths(counted, untold(found.withColumn("grown", _grown()), depths))
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
    if depths is not None:
        is_row = F.coalesce(is_row, F.lit(False)) | F.col("is_counted")  # noqa: FBT003  (a column of Spark's)
    return counted.where(is_row).select(*names, *percentiles)


def untold(parts: DataFrame, depths: DataFrame, *, by: str = "minute") -> DataFrame:
    """Return by how much each of *depths* differs from what was told until then.

    *parts* have the column *by*, a time, and by how much the backlog has ``grown``. The result has
    *by*, protocol, queue and ``untold``, one row for the last of the depths at a time.
    """
    at = F.timestamp_millis(_minute(F.unix_millis("at"))) if by == "minute" else F.unix_millis("at")
    place = (by, "protocol", "queue")
    told = parts.groupBy(*place).agg(F.sum("grown").alias("grown"))
    counted = depths.groupBy(at.alias(by), "protocol", "queue").agg(
        F.max_by("backlog", "at").alias("depth")
    )
    so_far = Window.partitionBy("protocol", "queue").orderBy(by)
    both = told.join(counted, [*place], "full").withColumn(
        "known", F.coalesce(F.sum("grown").over(so_far), F.lit(0))
    )
    found = both.where("depth IS NOT NULL")
    return found.select(*place, (F.col("depth") - F.col("known")).alias("untold"))


def _with_depths(counted: DataFrame, differing: DataFrame) -> DataFrame:
    """Add to the backlog of jobs without a name what is *differing*, until the next is known."""
    rows = differing.withColumn("name", F.lit(""))
    both = counted.join(rows, [*KEYS], "full")
    told = F.last("backlog", ignorenulls=True).over(_so_far())
    more = F.last("untold", ignorenulls=True).over(_so_far())
    none = F.lit(0)
    backlog = F.greatest(none, F.coalesce(told, none) + F.coalesce(more, none))
    # One that is empty again has a row too: the last row says what there is.
    is_counted = F.col("untold").isNotNull() & (
        (F.col("backlog") > 0) | (F.lag("backlog", 1, 0).over(_over()) > 0)
    )
    counts = {name: F.coalesce(name, none) for name in COUNTS}
    return both.withColumns({**counts, "backlog": backlog}).withColumn("is_counted", is_counted)


def _grown() -> Column:
    return F.col("entered") - F.col("gone") + F.col("carried")


def _so_far() -> WindowSpec:
    return _over().rowsBetween(Window.unboundedPreceding, Window.currentRow)


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
