"""The figures of a report, aggregated from the lake with Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from tambomq.bulk.histogram import MASKS
from tambomq.clock import now_ms
from tambomq.errors import SettingsError
from tambomq.pipeline.ingest import gold as gold_parts
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, DEPTHS, OPEN, Lake
from tambomq.pipeline.lake.log import LakeVersion
from tambomq.pipeline.report.depths import counted
from tambomq.pipeline.report.figures import (
    Counts,
    FigureRow,
    Figures,
    Point,
    Reason,
    Spread,
    order,
    step_of,
    steps,
)

_DEAD_LETTER: Final = ("protocol", "reason")
COUNTED: Final = ("entered", "done", "failed", "retried", "dead")
SERIES: Final = ("protocol", "queue", "name")
MAX_REASONS: Final = 12
MAX_SLOWEST: Final = 10
MAX_LINES: Final = 500
MINUTE_S: Final = 60
_MINUTE_MS: Final = 60_000
# The relative rank error is 1 / _ACCURACY: fine enough for p99.
_ACCURACY: Final = 10_000
_SHARES: Final = (0.5, 0.95, 0.99)


def figures(
    spark: SparkSession,
    lake: Lake,
    *,
    from_ms: int | None = None,
    until_ms: int | None = None,
    queues: Iterable[str] = (),
) -> Figures:
    """Return the figures of a period; raise `SettingsError` if the lake has no data of it.

    *queues* are patterns of ``protocol:queue``; none means all.
    """
    version = lake.log.version()
    gold = _chosen(lake.read(spark, "gold", version), queues).cache()
    silver = _chosen(lake.read(spark, "silver", version), queues)
    depths = _chosen(lake.read(spark, "depths", version), queues)
    try:
        first, last = _ends(gold)
        begin = max(first, from_ms) if from_ms is not None else first
        end = min(last, until_ms) if until_ms is not None else last
        if begin >= end:
            raise SettingsError(
                f"the lake {lake.path} has no data of that time: it has data from "
                f"{_shown(first)} to {_shown(last)}"
            )
        step_s = step_of(begin, end)
        parts = _of_gold(gold) if step_s >= MINUTE_S else _of_lifecycles(spark, lake, version)
        letters = lake.rows(spark, BRONZE, version.of(BRONZE)).where("source = 'dlq'")
        about = (gold, silver, _chosen(parts, queues), letters)
        found = _figures(lake, *about, (begin, end, step_s))
        if version.of(DEPTHS):
            found = counted(found, depths)
        return msgspec.structs.replace(found, lines=found.lines[:MAX_LINES])
    finally:
        gold.unpersist()


def _figures(
    lake: Lake,
    gold: DataFrame,
    silver: DataFrame,
    parts: DataFrame,
    letters: DataFrame,
    time: tuple[int, int, int],
) -> Figures:
    begin, end, step_s = time
    now = gold.where(_within("minute", begin, end))
    ran = silver.where(_within("first_run_at", begin, end))
    ended = silver.where(_within("finished_at", begin, end))
    spreads = (_spreads(ran, "wait_ms"), _spreads(ended, "run_ms"))
    lines = _lines(gold, now, ran, ended, end)
    slow = sorted(lines, key=lambda line: -(line.run.p95 or -1))
    return Figures(
        lake=str(lake.path),
        made_ms=now_ms(),
        from_ms=begin,
        until_ms=end,
        step_s=step_s,
        totals=_counts(now.agg(*map(_sum, COUNTED)).first()),
        backlog=sum(line.backlog for line in lines),
        wait=spreads[0],
        run=spreads[1],
        points=_points(parts, ran, ended, steps(begin, end, step_s), step_s * 1000),
        lines=lines,
        slowest=[line for line in slow[:MAX_SLOWEST] if line.run.p95 is not None],
        reasons=_reasons(ended, letters),
    )


def _points(
    parts: DataFrame, ran: DataFrame, ended: DataFrame, places: list[int], step: int
) -> list[Point]:
    summed = parts.groupBy(_step("ms", step)).agg(*map(_sum, (*COUNTED, "grown"))).collect()
    rows = {row.step: row for row in summed}
    waits = _spreads_by(ran, [_step(_ms("first_run_at"), step)], "wait_ms")
    runs = _spreads_by(ended, [_step(_ms("finished_at"), step)], "run_ms")
    backlog = sum(row.grown for at, row in rows.items() if at < places[0])
    points = []
    for at in places:
        row = rows.get(at)
        backlog += row.grown if row else 0
        wait, run = waits.get((at,), Spread()), runs.get((at,), Spread())
        points.append(Point(at, _counts(row), max(0, backlog), wait, run))
    return points


def _of_gold(gold: DataFrame) -> DataFrame:
    """Return counts and backlog growth of each minute."""
    before = f.lag("backlog", 1, 0).over(Window.partitionBy(*SERIES).orderBy("minute"))
    grown = (f.col("backlog") - before).alias("grown")
    return gold.select(*SERIES, _ms("minute").alias("ms"), *COUNTED, grown)


def _of_lifecycles(spark: SparkSession, lake: Lake, version: LakeVersion) -> DataFrame:
    """Return the same for single events, for steps shorter than a minute."""
    closed = gold_parts.of_lifecycles(lake.rows(spark, CLOSED, version.of(CLOSED)), closed=True)
    live = gold_parts.of_lifecycles(lake.rows(spark, OPEN, version.of(OPEN)), closed=False)
    runs = gold_parts.of_runs(lake.rows(spark, BRONZE, version.of(BRONZE)))
    parts = closed.unionByName(live).unionByName(runs, allowMissingColumns=True)
    zero = [f.coalesce(name, f.lit(0)).alias(name) for name in (*COUNTED, "gone")]
    grown = (f.col("entered") - f.col("gone")).alias("grown")
    events = parts.select(*SERIES, "ms", *zero).select("*", grown)
    if not version.of(DEPTHS):
        return events
    # A backlog without events counts from one snapshot to the next.
    more = gold_parts.unreported(events, lake.read(spark, "depths", version), by="ms")
    before = f.lag("unreported", 1, 0).over(Window.partitionBy("protocol", "queue").orderBy("ms"))
    none = [f.lit(0).alias(name) for name in (*COUNTED, "gone")]
    name, changed = f.lit("").alias("name"), (f.col("unreported") - before).alias("grown")
    return events.unionByName(more.select("protocol", "queue", name, "ms", *none, changed))


def _lines(
    gold: DataFrame, now: DataFrame, ran: DataFrame, ended: DataFrame, end: int
) -> list[FigureRow]:
    counts = {_key(row): row for row in now.groupBy(*SERIES).agg(*map(_sum, COUNTED)).collect()}
    last = f.max_by(f.struct("backlog", "oldest_age_s", "minute"), "minute").alias("last")
    held = {
        _key(row): row.last
        for row in gold.where(_ms("minute") < end).groupBy(*SERIES).agg(last).collect()
    }
    waits = _spreads_by(ran, map(f.col, SERIES), "wait_ms")
    runs = _spreads_by(ended, map(f.col, SERIES), "run_ms")
    found = []
    for key in counts.keys() | {key for key, each in held.items() if each.backlog}:
        at = held.get(key)
        since_s = (end - _ms_of(at.minute)) // 1000 - 60 if at and at.backlog else 0
        found.append(
            FigureRow(
                *key,
                counts=_counts(counts.get(key)),
                backlog=at.backlog if at else 0,
                oldest_age_s=_age_s(at, max(0, since_s)),
                wait=waits.get(key, Spread()),
                run=runs.get(key, Spread()),
            )
        )
    return sorted(found, key=order)


def _age_s(last: Row | None, since_s: int) -> int | None:
    if last is None or not last.backlog:
        return 0
    return None if last.oldest_age_s is None else last.oldest_age_s + since_s


def _reasons(ended: DataFrame, letters: DataFrame) -> list[Reason]:
    # Events have the text of an error; its type is only in dead letters that were read.
    kind = f.get_json_object("others", "$.error_type")
    typed = letters.select(*_DEAD_LETTER, f.col("detail").alias("error"), kind.alias("kind"))
    types = typed.groupBy(*_DEAD_LETTER, "error").agg(f.min("kind").alias("kind"), f.max("kind"))
    types = types.where("kind = `max(kind)`").drop("max(kind)")
    events = ended.where(f.col("outcome") == "dead").join(types, [*_DEAD_LETTER, "error"], "left")
    dead = events.select(
        f.coalesce("reason", f.lit("")).alias("reason"),
        shape(f.concat_ws(": ", "kind", "error")).alias("error"),
        "queue",
    )
    by = dead.groupBy("reason", "error", "queue").agg(f.count("*").alias("n"))
    rows = (
        by.groupBy("reason", "error")
        .agg(f.sum("n").alias("dead"), f.max_by("queue", "n").alias("queue"))
        .orderBy(f.desc("dead"), "reason", "error")
        .limit(MAX_REASONS)
        .collect()
    )
    return [Reason(row.reason, row.error, row.dead, row.queue) for row in rows]


def shape(text: Column) -> Column:
    """Return *text* masked like `histogram.shape`, cut to the width of the page."""
    masked = reduce(lambda column, mask: f.regexp_replace(column, *mask), MASKS, text)
    return f.substring(f.trim(masked), 1, 120)


def _chosen(table: DataFrame, queues: Iterable[str]) -> DataFrame:
    wanted = list(queues)
    if not wanted:
        return table
    address = f.concat_ws(":", "protocol", "queue")
    found = f.lit(False)  # noqa: FBT003  (a column of Spark's)
    for pattern in wanted:
        found = found | address.rlike(_regex(pattern))
    return table.where(found)


def _regex(pattern: str) -> str:
    """Return a glob of ``*`` and ``?`` as Java's regular expression."""
    words = {"*": ".*", "?": "."}
    return "^" + "".join(words.get(c, f"\\Q{c}\\E") for c in pattern) + "$"


def _ends(gold: DataFrame) -> tuple[int, int]:
    row: Any = gold.agg(f.min(_ms("minute")).alias("a"), f.max(_ms("minute")).alias("b")).first()
    if row.a is None:
        raise SettingsError("the lake has no data of these queues: `tambo pipeline run` fills it")
    return row.a, row.b + _MINUTE_MS


def _ms(column: str) -> Column:
    return f.unix_millis(column)


def _ms_of(moment: datetime) -> int:
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def _within(column: str, begin: int, end: int) -> Column:
    return (_ms(column) >= begin) & (_ms(column) < end)


def _step(ms: Column | str, step: int) -> Column:
    found = f.col(ms) if isinstance(ms, str) else ms
    return (found - f.pmod(found, f.lit(step))).alias("step")


def _sum(column: str) -> Column:
    return f.coalesce(f.sum(column), f.lit(0)).alias(column)


def _percentiles(column: str) -> Column:
    shares = f.array(*map(f.lit, _SHARES))
    return f.percentile_approx(column, shares, f.lit(_ACCURACY)).alias("p")


def _spreads(table: DataFrame, column: str) -> Spread:
    row: Any = table.agg(_percentiles(column)).first()
    return _spread(row.p)


def _spreads_by(table: DataFrame, by: Iterable[Column], of: str) -> dict[Any, Spread]:
    rows = table.groupBy(*by).agg(_percentiles(of)).collect()
    return {tuple(row)[:-1]: _spread(row.p) for row in rows}


def _spread(found: list[int] | None) -> Spread:
    return Spread(*found) if found else Spread()


def _counts(row: Row | None) -> Counts:
    return Counts(*(row[name] for name in COUNTED)) if row else Counts()


def _key(row: Row) -> tuple[str, str, str]:
    return row.protocol, row.queue, row["name"]


def _shown(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
