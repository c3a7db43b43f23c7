"""Gold: counts and percentiles per minute, queue and name. Stored as partial sums, added on read.

An *amount* is what one lifecycle or run adds to a minute: a row with a time ``ms`` and a number for
each of `COUNTS` (entered 1, done 1, …). `summed` adds the amounts of each minute.
``carried`` is the backlog that is left of deleted minutes (entered minus gone); ``emptied`` is when
the last of the jobs that entered in a minute ended.
A lifecycle is summed up once, when it is closed; open ones are added on read, so the counts are
exact in each version of the lake. Failures and retries are summed up in the batch that has their
events. Percentiles come from KLL sketches (k = 200): the rank error is at most 1.33 % with 99 %
confidence.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.pipeline.ingest import silver
from tambomq.pipeline.lake import tables

SERIES: Final = ("protocol", "queue", "name")
KEYS: Final = ("minute", *SERIES)
COUNTS: Final = ("entered", "done", "failed", "retried", "dead", "gone", "carried")
_NEVER_MS: Final = 253_402_300_740_000
"""The last minute that Spark can represent: the job has not ended."""
_RANKS: Final = (0.5, 0.95, 0.99)


def of_lifecycles(states: DataFrame, *, closed: bool) -> DataFrame:
    """Return the amounts of *states*; *closed* ones count as ended, with their last event."""
    end = silver.ended_or_seen_ms() if closed else silver.ended_ms()
    entered = silver.entered_ms()
    # Clocks differ, so the end may seem to be before the start: use the later of both.
    ended = F.greatest(end, F.when(end.isNotNull(), entered))
    outcome = silver.outcome()
    amounts = F.array(
        _amounts(entered, entered=F.lit(1), emptied=F.coalesce(ended, F.lit(_NEVER_MS))),
        _amounts(silver.first_run_ms(), wait=silver.wait_ms()),
        _amounts(
            ended,
            gone=F.lit(1),
            done=(outcome == "done").cast("int"),
            dead=(outcome == "dead").cast("int"),
            run=silver.run_ms(),
        ),
    )
    name = F.coalesce("named.text", F.lit("")).alias("name")
    found = states.select("protocol", "queue", name, F.explode(amounts).alias("each"))
    return found.select(*SERIES, "each.*").where("ms IS NOT NULL")


def of_runs(bronze: DataFrame) -> DataFrame:
    """Return the amounts of failed runs and retries among rows of *bronze*."""
    again = (F.col("event") == "retry-scheduled") | (
        (F.col("event") == "received") & (F.col("attempt") > 1)
    )
    amounts = _amounts(
        silver.happened_ms(),
        failed=(F.col("event") == "failed").cast("int"),
        retried=again.cast("int"),
    )
    name = F.coalesce("name", F.lit("")).alias("name")
    found = bronze.where((F.col("event") == "failed") | again)
    rows = found.select("protocol", "queue", name, amounts.alias("each")).select(*SERIES, "each.*")
    return rows.where("ms IS NOT NULL")


def summed(amounts: DataFrame) -> DataFrame:
    """Return rows of `tables.MINUTES`: one for each minute, queue and name of *amounts*."""
    found = (
        amounts.withColumn("minute", F.timestamp_millis(_minute(F.col("ms"))))
        .groupBy(*KEYS)
        .agg(
            *(F.sum(name).alias(name) for name in COUNTS),
            F.timestamp_millis(F.max(_minute(F.col("emptied")))).alias("emptied"),
            F.kll_sketch_agg_bigint("wait").alias("waits"),
            F.kll_sketch_agg_bigint("run").alias("runs"),
        )
    )
    return _as_minutes(found)


def merged(minutes: DataFrame) -> DataFrame:
    """Return *minutes* with the rows of one minute, queue and name merged."""
    found = minutes.groupBy(*KEYS).agg(
        *(F.sum(name).alias(name) for name in COUNTS),
        F.max("emptied").alias("emptied"),
        F.kll_merge_agg_bigint("waits").alias("waits"),
        F.kll_merge_agg_bigint("runs").alias("runs"),
    )
    return _as_minutes(found)


def result_rows(minutes: DataFrame, live: DataFrame, depths: DataFrame | None = None) -> DataFrame:
    """Return the rows of the table gold: *minutes* and the open states *live*, added up.

    Jobs that only the snapshots *depths* know of count in the backlog, with an empty name.
    """
    found = merged(minutes.unionByName(summed(of_lifecycles(live, closed=False))))
    left = F.sum(_grown()).over(_so_far())
    counted = _with_oldest(found).withColumn("backlog", left)
    if depths is not None:
        counted = _with_depths(counted, unreported(found.withColumn("grown", _grown()), depths))
    waits, runs = _quantiles("waits"), _quantiles("runs")
    percentiles = [
        column[index].alias(f"{what}_p{round(rank * 100)}_ms")
        for what, column in (("wait", waits), ("run", runs))
        for index, rank in enumerate(_RANKS)
    ]
    names = [column.name for column in tables.GOLD if not column.name.endswith("_ms")]
    # A row that only carries the backlog of deleted days is not shown.
    happened = F.col("entered") + F.col("failed") + F.col("retried") + F.col("gone")
    is_row = (happened > 0) | (F.kll_sketch_get_n_bigint("waits") > 0)
    if depths is not None:
        is_row = F.coalesce(is_row, F.lit(False)) | F.col("is_counted")  # noqa: FBT003  (a column of Spark's)
    return counted.where(is_row).select(*names, *percentiles)


def unreported(events: DataFrame, depths: DataFrame, *, by: str = "minute") -> DataFrame:
    """Return by how much each snapshot of *depths* differs from the backlog of the events so far.

    *events* have the column *by*, a time, and ``grown``, the change of the backlog. The result has
    *by*, protocol, queue and ``unreported``; of several snapshots within *by* the last counts.
    """
    at = F.timestamp_millis(_minute(F.unix_millis("at"))) if by == "minute" else F.unix_millis("at")
    keys = (by, "protocol", "queue")
    reported = events.groupBy(*keys).agg(F.sum("grown").alias("grown"))
    counted = depths.groupBy(at.alias(by), "protocol", "queue").agg(
        F.max_by("backlog", "at").alias("depth")
    )
    so_far = Window.partitionBy("protocol", "queue").orderBy(by)
    both = reported.join(counted, [*keys], "full").withColumn(
        "known", F.coalesce(F.sum("grown").over(so_far), F.lit(0))
    )
    found = both.where("depth IS NOT NULL")
    return found.select(*keys, (F.col("depth") - F.col("known")).alias("unreported"))


def _with_depths(counted: DataFrame, differing: DataFrame) -> DataFrame:
    """Add the differences to the backlog of the empty name, each until the next snapshot."""
    rows = differing.withColumn("name", F.lit(""))
    both = counted.join(rows, [*KEYS], "full")
    reported = F.last("backlog", ignorenulls=True).over(_so_far())
    more = F.last("unreported", ignorenulls=True).over(_so_far())
    none = F.lit(0)
    backlog = F.greatest(none, F.coalesce(reported, none) + F.coalesce(more, none))
    # A queue that became empty has a row too: its last row is its backlog now.
    is_counted = F.col("unreported").isNotNull() & (
        (F.col("backlog") > 0) | (F.lag("backlog", 1, 0).over(_by_minute()) > 0)
    )
    counts = {name: F.coalesce(name, none) for name in COUNTS}
    return both.withColumns({**counts, "backlog": backlog}).withColumn("is_counted", is_counted)


def _grown() -> Column:
    return F.col("entered") - F.col("gone") + F.col("carried")


def _so_far() -> WindowSpec:
    return _by_minute().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _with_oldest(found: DataFrame) -> DataFrame:
    """Add the age of the oldest job that had not ended at the end of each minute.

    The jobs that entered in one minute form a group. A group is the oldest from when the last job
    of all earlier groups has ended until its own last job has. So there is at most one oldest group
    at any time, and one pass in order of time finds it.
    """
    before = _by_minute().rowsBetween(Window.unboundedPreceding, -1)
    earlier = F.max("emptied").over(before)
    since = F.greatest("minute", earlier)
    groups = (
        found.where("entered > 0")
        .withColumn("since", since)
        .where("since < emptied")
        .select(
            *SERIES,
            F.col("since").alias("minute"),
            F.struct("minute", "emptied").alias("oldest"),
            F.expr("false").alias("is_row"),
        )
    )
    rows = found.withColumn("is_row", F.expr("true"))
    so_far = _by_minute().rangeBetween(Window.unboundedPreceding, Window.currentRow)
    oldest = F.last("oldest", ignorenulls=True).over(so_far)
    age = F.unix_seconds("minute") - F.unix_seconds(F.col("oldest.minute"))
    return (
        rows.unionByName(groups, allowMissingColumns=True)
        .withColumn("oldest", oldest)
        .where("is_row")
        .withColumn("oldest_age_s", F.when(F.col("minute") < F.col("oldest.emptied"), age))
        .drop("oldest", "is_row")
    )


def _by_minute() -> WindowSpec:
    """Return the window over the rows of one series in order of time."""
    return Window.partitionBy(*SERIES).orderBy("minute")


def _amounts(ms: Column, **given: Column) -> Column:
    """Return the amounts *given*, at the time *ms*; the other counts are 0."""
    values = {name: F.lit(0) for name in COUNTS}
    values |= {name: F.lit(None) for name in ("emptied", "wait", "run")}
    values |= given
    fields = [column.cast("bigint").alias(name) for name, column in values.items()]
    return F.struct(ms.cast("bigint").alias("ms"), *fields)


def _minute(ms: Column) -> Column:
    return F.floor(ms / 60_000) * 60_000


def _as_minutes(found: DataFrame) -> DataFrame:
    """Return *found* with the columns of `tables.MINUTES`."""
    dated = found.withColumn("date", F.to_date("minute"))
    return dated.select(*(column.name for column in tables.MINUTES))


def _quantiles(sketch: str) -> Column:
    ranks = F.array(*map(F.lit, _RANKS))
    # Spark fails for the quantiles of an empty sketch.
    has_some = F.kll_sketch_get_n_bigint(sketch) > 0
    return F.when(has_some, F.kll_sketch_get_quantile_bigint(sketch, ranks))
