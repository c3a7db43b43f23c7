"""Compaction of a lake: merges small files, drops old days, and deletes unreferenced files.

It needs no Spark, only PyArrow. A pipeline may run at the same time: the change is one entry of the
log, and files are deleted only an hour after the last version that has them.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tambomq.clock import now_ms
from tambomq.errors import LakeError
from tambomq.pipeline.lake.files import sync
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, DEPTHS, LATE, MINUTES, Lake, is_full
from tambomq.pipeline.lake.log import LakeFile, LakeVersion, LogEntry, by_table

log = logging.getLogger(__name__)

AIM_BYTES: Final = 128 << 20
"""The size of merged files: large enough for fast scans."""
SMALL_BYTES: Final = AIM_BYTES // 2
KEPT_MS: Final = 3_600_000
"""How long a reader may use a version after a newer one exists."""
KEPT_TABLES: Final = (BRONZE, CLOSED, LATE, MINUTES, DEPTHS)
"""The tables that are compacted; each batch rewrites the others as a whole."""
_DATE: Final = "date="
_SERIES: Final = ["protocol", "queue", "name"]
_EMPTY: Final = bytes.fromhex("02010f01c8000800")
"""An empty KLL sketch, as Spark writes it."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction."""

    merged: int
    """Small files that were merged."""
    into: int
    dropped_days: int
    """Days dropped, counted for each table."""
    dropped_rows: int
    deleted: int
    """Unreferenced files that were deleted."""
    freed_bytes: int


def compact(lake: Lake, *, retain_days: int | None = None) -> CompactionResult:
    """Merge small files; drop days older than *retain_days*. Raises `LakeError`."""
    try:
        return _compact(lake, retain_days)
    except OSError as error:
        if not is_full(error):
            raise
        raise LakeError(
            f"the disk of {lake.path} is full; the lake is unchanged: free some space"
        ) from error


def _compact(lake: Lake, retain_days: int | None) -> CompactionResult:
    with lake.writing():
        change = _Change()
        try:
            old = _change(lake, retain_days, change)
            if change.remove:
                entry = LogEntry(
                    at_ms=now_ms(),
                    by="compact",
                    add=dict(change.add),
                    remove=by_table(change.remove),
                )
                lake.log.commit(entry)
        except BaseException:
            lake.discard(file for files in change.add.values() for file in files)
            raise
    deleted, freed = _vacuumed(lake)
    days = {(table, day_of(file)) for table, files in old.items() for file in files}
    rows = sum(file.rows for files in old.values() for file in files)
    return CompactionResult(change.merged, change.into, len(days), rows, deleted, freed)


@dataclass(slots=True)
class _Change:
    """The changes that a compaction will commit to the log."""

    add: dict[str, list[LakeFile]] = field(default_factory=lambda: defaultdict(list))
    remove: dict[str, list[LakeFile]] = field(default_factory=lambda: defaultdict(list))
    merged: int = 0
    into: int = 0


def _change(lake: Lake, retain_days: int | None, change: _Change) -> dict[str, list[LakeFile]]:
    """Write the files of *change*; return those that are dropped because they are too old."""
    version = lake.log.version()
    old = _old(version, retain_days)
    dropped = {file.path for files in old.values() for file in files}
    change.remove.update((table, [*files]) for table, files in old.items())
    if left := _carried(lake, old.get(MINUTES, []), retain_days):
        change.add[MINUTES].append(left)
    for table in KEPT_TABLES:
        files = [file for file in version.of(table) if file.path not in dropped]
        for group in groups(files):
            change.add[table].append(_together(lake, group))
            change.remove[table] += group
            change.merged += len(group)
            change.into += 1
    return old


def groups(files: Iterable[LakeFile]) -> Iterator[list[LakeFile]]:
    """Yield groups of small files of one folder, each of up to `AIM_BYTES`."""
    by_folder: dict[PurePosixPath, list[LakeFile]] = defaultdict(list)
    for file in files:
        if file.bytes < SMALL_BYTES:
            by_folder[PurePosixPath(file.path).parent].append(file)
    for small in by_folder.values():
        group: list[LakeFile] = []
        for file in small:
            if group and sum(each.bytes for each in group) + file.bytes > AIM_BYTES:
                if len(group) > 1:
                    yield group
                group = []
            group.append(file)
        if len(group) > 1:
            yield group


def day_of(file: LakeFile) -> date | None:
    """Return the day that the folder of *file* names."""
    for part in PurePosixPath(file.path).parts:
        if part.startswith(_DATE):
            try:
                return date.fromisoformat(part.removeprefix(_DATE))
            except ValueError:
                return None
    return None


def vacuum(lake: Lake, now: float | None = None) -> tuple[int, int]:
    """Delete files that no version of the last hour has; return how many, and their bytes.

    The hour is counted back from the start of the oldest live writer, so that files which a
    running batch has written or reads are kept.
    """
    # Before the version is read: a writer that has ended by then has its entry in it.
    writing_ms = lake.writing_since_ms()
    now_ms = int((time.time() if now is None else now) * 1000)
    since_ms = min(now_ms, writing_ms or now_ms) - KEPT_MS
    version = lake.log.version()
    wanted = {path for files in version.files.values() for path in files}
    for entry in lake.log.entries():
        if entry.at_ms >= since_ms:
            wanted |= {path for paths in entry.remove.values() for path in paths}
    deleted = freed = 0
    for path in _data_files(lake):
        try:
            about = path.stat()
        except FileNotFoundError:
            # Moved out of staging, or deleted by another process.
            continue
        # A file that is being written is in no version yet.
        if path.relative_to(lake.path).as_posix() in wanted or about.st_mtime * 1000 >= since_ms:
            continue
        path.unlink(missing_ok=True)
        deleted, freed = deleted + 1, freed + about.st_size
    lake.log.forget_before(since_ms)
    return deleted, freed


def _vacuumed(lake: Lake) -> tuple[int, int]:
    try:
        return vacuum(lake)
    except OSError as error:
        # The compaction is committed; the next one deletes the files.
        log.warning("%s: unreferenced files could not be deleted: %s", lake.path, error)
        return 0, 0


def _data_files(lake: Lake) -> Iterator[Path]:
    for folder in ("bronze", "silver", "gold", "staging"):
        yield from (path for path in (lake.path / folder).rglob("*") if path.is_file())


def _together(lake: Lake, group: Sequence[LakeFile]) -> LakeFile:
    """Write the rows of *group* into one file, in their order."""
    paths = [lake.path / file.path for file in group]
    # Files of an older TamboMQ lack newer columns.
    schema = pa.unify_schemas([pq.read_schema(path).remove_metadata() for path in paths])
    made = paths[0].parent / f"{uuid4().hex}.parquet"
    try:
        with pq.ParquetWriter(made, schema, compression="snappy") as writer:
            for path in paths:
                for batch in pq.ParquetFile(path).iter_batches():
                    writer.write_table(_shaped(pa.Table.from_batches([batch]), schema))
        return _noted(lake, made)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _shaped(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _noted(lake: Lake, made: Path) -> LakeFile:
    sync(made)
    sync(made.parent)
    path = made.relative_to(lake.path).as_posix()
    return LakeFile(path, pq.read_metadata(made).num_rows, made.stat().st_size)


# ── days past retention ──────────────────────────────────────────────────────


def _first_day(retain_days: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=retain_days)


def _old(version: LakeVersion, retain_days: int | None) -> dict[str, list[LakeFile]]:
    if retain_days is None:
        return {}
    first = _first_day(retain_days)
    found = {
        table: [f for f in version.of(table) if (day := day_of(f)) is not None and day < first]
        for table in KEPT_TABLES
    }
    return {table: files for table, files in found.items() if files}


def _carried(lake: Lake, old: Sequence[LakeFile], retain_days: int | None) -> LakeFile | None:
    """Write the backlog of dropped minutes as one row per series: later minutes add to it."""
    if not old or retain_days is None:
        return None
    counts = ["entered", "gone", "carried"]
    tables = [pq.ParquetFile(lake.path / file.path).read([*_SERIES, *counts]) for file in old]
    sums = pa.concat_tables(tables).group_by(_SERIES).aggregate([(name, "sum") for name in counts])
    rows = [
        ([row[name] for name in _SERIES], row["entered_sum"] - row["gone_sum"] + row["carried_sum"])
        for row in sums.to_pylist()
    ]
    if not (rows := [row for row in rows if row[1]]):
        return None
    day = _first_day(retain_days)
    schema = pq.read_schema(lake.path / old[0].path).remove_metadata()
    minute = datetime(day.year, day.month, day.day, tzinfo=UTC)
    made = lake.path / MINUTES / f"{_DATE}{day}" / f"{uuid4().hex}.parquet"
    made.parent.mkdir(parents=True, exist_ok=True)
    filled = [_row(schema, minute, series, left) for series, left in rows]
    pq.write_table(pa.Table.from_pylist(filled, schema=schema), made)
    return _noted(lake, made)


def _row(schema: pa.Schema, minute: datetime, series: list[str], left: int) -> dict[str, object]:
    row: dict[str, object] = {each.name: 0 for each in schema if each.type == pa.int64()}
    row |= dict(zip(_SERIES, series, strict=True))
    return {**row, "minute": minute, "carried": left, "waits": _EMPTY, "runs": _EMPTY}
