"""Steps of writers of a lake, without Spark, and the invariants after each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tambomq.pipeline.ingest.batch import BatchInfo, LakeBatchWriter, LifecycleTimeouts
from tambomq.pipeline.lake.compact import compact, vacuum
from tambomq.pipeline.lake.lake import BRONZE, OPEN, Lake
from tambomq.pipeline.lake.log import LakeFile

BLOCKS, BATCHES = 5, 9
"""So many compactions, each after so many batches: 45 commits and 5 compactions."""
FOLDER = "protocol=rsmq/queue=q/date=2026-11-16"
no_query: Any = None


class Batch(LakeBatchWriter):
    """A batch of one row, which Spark has nothing to do with."""

    def __init__(self, lake: Lake, number: int) -> None:
        super().__init__(
            lake, no_query, LifecycleTimeouts(0, 10**12), BatchInfo("query", number, {})
        )
        self.number = number

    def _write(self, _: Any, home: Path) -> tuple[dict[str, list[LakeFile]], int]:
        for table, folder in ((BRONZE, FOLDER), (OPEN, ".")):
            (home / table / folder).mkdir(parents=True)
            pq.write_table(pa.table({"x": [self.number]}), home / table / folder / "a.parquet")
        return {table: self._adopt(table, home / table) for table in (BRONZE, OPEN)}, 0


def make(lake: Lake, step: int | None) -> None:
    """Absorb the batch of number *step*, or compact the lake if it is none."""
    if step is None:
        compact(lake)
    else:
        Batch(lake, step).run(no_query)


def is_whole(path: Path, batches: int, *, max_batches: int | None = None) -> None:
    """Check that all files that count are there, with the rows of *batches* each once."""
    lake = Lake.open(path)
    version = lake.log.version()
    for table in (BRONZE, OPEN):
        files = version.of(table)
        rows = [row for f in files for row in pq.ParquetFile(path / f.path).read()["x"].to_pylist()]
        done = version.batches.get("query", -1) + 1
        assert batches <= done <= (max_batches or batches)
        assert sorted(rows) == ([*range(done)] if table == BRONZE else [*range(done)][-1:])
        assert sum(file.rows for file in files) == len(rows)


def recovers(path: Path, step: int | None, done: int, *, thoroughly: bool) -> None:
    """Check what a step that went wrong has left, and that it can be made again."""
    after = done + (step is not None)
    is_whole(path, done, max_batches=after)
    make(Lake.open(path), step)
    is_whole(path, after)
    if not thoroughly:
        return
    make(Lake.open(path), after)
    compact(Lake.open(path))
    lake = Lake.open(path)
    vacuum(lake, time.time() + 7200)
    is_whole(path, after + 1)
    left = {found.relative_to(path).as_posix() for found in path.rglob("*.parquet")}
    assert left == {name for files in lake.log.version().files.values() for name in files}
    assert [*(path / "writers").iterdir()] == []
