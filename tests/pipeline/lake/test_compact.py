"""Fewer, larger files with the same rows, and only the days that are wanted."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tambomq.errors import LakeConflict
from tambomq.pipeline.lake import compact as compacting
from tambomq.pipeline.lake.compact import AIM_BYTES, KEPT_MS, compact, day_of, groups, vacuum
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, MINUTES, Lake
from tambomq.pipeline.lake.log import LakeFile, LogEntry

TODAY = datetime.now(UTC).date()


def put(lake: Lake, table: str, folder: str, **columns: list[Any]) -> LakeFile:
    """Add a file to a table as a batch would."""
    with lake.staged() as home:
        (home / folder).mkdir(parents=True)
        pq.write_table(pa.table(columns), home / folder / "part.parquet")
        (file,) = lake.adopt(table, home)
    lake.log.commit(LogEntry(at_ms=1, by="query", add={table: [file]}))
    return file


def values(lake: Lake, table: str, column: str) -> list[Any]:
    tables = [pq.ParquetFile(lake.path / file.path).read() for file in lake.log.version().of(table)]
    return [each for table in tables for each in table[column].to_pylist()]


def later(lake: Lake) -> None:
    """Set the times of all files back by two hours."""
    then = time.time() - 2 * KEPT_MS / 1000
    for path in lake.path.rglob("*.parquet"):
        os.utime(path, (then, then))


def test_small_files_of_a_folder_become_one(lake: Lake) -> None:
    for place in range(5):
        put(lake, BRONZE, f"protocol=rsmq/queue=q/date={TODAY}", x=[place])
    put(lake, BRONZE, f"protocol=rsmq/queue=other/date={TODAY}", x=[9])
    done = compact(lake)
    assert (done.merged, done.into) == (5, 1)
    assert sorted(values(lake, BRONZE, "x")) == [0, 1, 2, 3, 4, 9]
    assert len(lake.log.version().of(BRONZE)) == 2


def test_a_lake_that_is_in_order_stays_as_it_is(lake: Lake) -> None:
    put(lake, BRONZE, f"protocol=rsmq/queue=q/date={TODAY}", x=[1])
    before = lake.log.version().number
    assert compact(lake).merged == 0
    assert lake.log.version().number == before


def test_files_with_and_without_a_column_go_together(lake: Lake) -> None:
    folder = f"date={TODAY}"
    put(lake, CLOSED, folder, x=[1])
    put(lake, CLOSED, folder, x=[2], colour=["red"])
    compact(lake)
    assert sorted(zip(values(lake, CLOSED, "x"), values(lake, CLOSED, "colour"), strict=True)) == [
        (1, None),
        (2, "red"),
    ]


def test_compaction_does_not_exceed_the_target_size() -> None:
    half = AIM_BYTES // 2 - 1
    files = [LakeFile(f"bronze/a/{place}", 1, half) for place in range(5)]
    assert [len(group) for group in groups(files)] == [2, 2]
    assert [*groups([LakeFile("bronze/a/x", 1, AIM_BYTES), LakeFile("bronze/a/y", 1, 1)])] == []


def test_old_days_are_dropped_as_a_whole(lake: Lake) -> None:
    old, edge = TODAY - timedelta(days=31), TODAY - timedelta(days=30)
    for day in (old, edge, TODAY):
        put(lake, BRONZE, f"protocol=rsmq/queue=q/date={day}", x=[str(day)])
        put(lake, CLOSED, f"date={day}", x=[str(day)])
    done = compact(lake, retain_days=30)
    assert (done.dropped_days, done.dropped_rows) == (2, 2)
    for table in (BRONZE, CLOSED):
        assert sorted(values(lake, table, "x")) == [str(edge), str(TODAY)]


def test_the_backlog_of_a_dropped_day_is_carried_over(lake: Lake) -> None:
    def minute(day: Any, entered: int, ended: int) -> None:
        series = {"protocol": ["rsmq"], "queue": ["q"], "name": [""]}
        counts = {"entered": [entered], "gone": [ended], "carried": [0]}
        at = pa.array(
            [datetime(day.year, day.month, day.day, tzinfo=UTC)], pa.timestamp("us", "UTC")
        )
        sketches = {"waits": [b"x"], "runs": [b"x"]}
        put(lake, MINUTES, f"date={day}", minute=at, **series, **counts, **sketches)

    minute(TODAY - timedelta(days=3), 5, 1)
    minute(TODAY - timedelta(days=2), 1, 2)
    minute(TODAY, 0, 3)
    compact(lake, retain_days=1)
    assert sorted(values(lake, MINUTES, "carried")) == [0, 3]
    assert sum(values(lake, MINUTES, "entered")) == 0
    compact(lake, retain_days=1)
    assert sorted(values(lake, MINUTES, "carried")) == [0, 3]


def test_files_are_deleted_an_hour_after_their_last_version(lake: Lake) -> None:
    files = [put(lake, CLOSED, f"date={TODAY}", x=[place]) for place in range(2)]
    compact(lake)
    later(lake)
    assert vacuum(lake) == (0, 0)
    deleted, freed = vacuum(lake, time.time() + 2 * KEPT_MS / 1000)
    assert (deleted, freed) == (2, sum(file.bytes for file in files))
    assert sorted(values(lake, CLOSED, "x")) == [0, 1]


def test_files_of_a_dead_pipeline_are_deleted_and_those_of_a_live_one_kept(lake: Lake) -> None:
    (lake.path / "staging" / "dead").mkdir()
    (lake.path / "staging" / "dead" / "part.parquet").write_bytes(b"x")
    later(lake)
    (lake.path / CLOSED / "young.parquet").write_bytes(b"x")
    assert vacuum(lake) == (1, 1)
    assert (lake.path / CLOSED / "young.parquet").exists()


def test_two_concurrent_compactions_duplicate_no_row(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(3):
        put(lake, CLOSED, f"date={TODAY}", x=[place])
    together = compacting._together

    def raced(lake: Lake, group: Any) -> LakeFile:
        monkeypatch.setattr(compacting, "_together", together)
        compact(Lake.open(lake.path))
        return together(lake, group)

    monkeypatch.setattr(compacting, "_together", raced)
    with pytest.raises(LakeConflict):
        compact(lake)
    assert sorted(values(lake, CLOSED, "x")) == [0, 1, 2]


def test_a_folder_that_names_no_day_has_none() -> None:
    assert day_of(LakeFile("silver/closed/date=2026-11-16/a.parquet", 1, 1)) is not None
    assert day_of(LakeFile("silver/closed/date=__HIVE_DEFAULT_PARTITION__/a.parquet", 1, 1)) is None
    assert day_of(LakeFile("silver/open/a.parquet", 1, 1)) is None
