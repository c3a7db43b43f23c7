"""Assertions that compare the tables of a lake with the expected rows of `truth`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tambomq.pipeline.ingest import gold
from tambomq.pipeline.lake.lake import MINUTES, OPEN, Lake
from tests.pipeline import truth
from tests.pipeline.truth import Lifecycle, LifecycleKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFF = 0.0133
"""The rank error that the KLL sketch guarantees."""


def with_events(lifecycles: Sequence[Lifecycle]) -> list[Lifecycle]:
    """Return the lifecycles with at least one event: the others cannot be in the lake."""
    return [lifecycle for lifecycle in lifecycles if lifecycle.events]


def rows(spark: SparkSession, lake: Lake, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table, times in milliseconds."""
    return _listed(lake.read(spark, table))


def _listed(table: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.toArrow().to_pylist()
    return [{name: _plain(value) for name, value in row.items()} for row in found]


def silver(spark: SparkSession, lake: Lake) -> dict[LifecycleKey, dict[str, Any]]:
    """Return the rows of silver by protocol, queue, id and revived; each must be unique."""
    found = rows(spark, lake, "silver")
    by_id = {
        (row.pop("protocol"), row.pop("queue"), row.pop("id"), row.pop("revived")): row
        for row in found
    }
    assert len(by_id) == len(found)
    return by_id


def is_silver(spark: SparkSession, lake: Lake, lifecycles: Sequence[Lifecycle]) -> None:
    """Assert that silver has exactly the rows of *lifecycles*."""
    found, wanted = silver(spark, lake), truth.silver(with_events(lifecycles))
    differ = [(key, found.get(key), wanted.get(key)) for key in {*found, *wanted}]
    differ = [each for each in differ if each[1] != each[2]]
    assert not differ, (len(differ), differ[:3])


def is_gold(spark: SparkSession, lake: Lake, lifecycles: Sequence[Lifecycle]) -> None:
    """Assert that gold has the rows of *lifecycles*; percentiles within the sketch's error.

    Depth snapshots are left out: the workload has events, but no queues of that depth.
    """
    wanted = truth.gold(with_events(lifecycles))
    version = lake.log.version()
    tables = (lake.rows(spark, table, version.of(table)) for table in (MINUTES, OPEN))
    found = _listed(gold.result_rows(*tables))
    keys = {(row["minute"], (row["protocol"], row["queue"], row["name"])) for row in found}
    assert len(keys) == len(found)
    assert keys == set(wanted), sorted(keys ^ set(wanted))[:5]
    for row in found:
        minute = wanted[row["minute"], (row["protocol"], row["queue"], row["name"])]
        for name in ("entered", "done", "failed", "retried", "dead", "backlog", "oldest_age_s"):
            assert row[name] == getattr(minute, name), (name, row, minute)
        for rank in (50, 95, 99):
            _is_quantile(row[f"wait_p{rank}_ms"], rank / 100, minute.waits)
            _is_quantile(row[f"run_p{rank}_ms"], rank / 100, minute.runs)


def is_bronze(spark: SparkSession, lake: Lake, lifecycles: Sequence[Lifecycle]) -> None:
    """Assert that bronze has every event exactly once."""
    found = lake.read(spark, "bronze")
    places = found.select("protocol", "queue", "source", "entry_id")
    about_jobs = found.where("event <> 'drained'").count()
    assert about_jobs == sum(lifecycle.events for lifecycle in lifecycles)
    assert places.distinct().count() == found.count()


def _is_quantile(value: int | None, rank: float, of: list[int]) -> None:
    if not of or value is None:
        assert not of
        assert value is None
        return
    ordered, count = sorted(of), len(of)
    low, high = bisect_left(ordered, value) / count, bisect_right(ordered, value) / count
    # A quantile between two neighbouring values has either rank.
    slack = _OFF + 1 / count
    assert low - slack <= rank <= high + slack, (value, rank, low, high, count)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return value
