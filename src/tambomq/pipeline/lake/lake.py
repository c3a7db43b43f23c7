"""The lake: one directory with tables of Parquet files, and the log that says which files count.

    lake.json       the marker of a lake: its format and id
    _log/           the files of each table (see `tambomq.pipeline.lake.log`)
    bronze/         events, journal entries and dead letters, as they were read
    silver/         lifecycles of jobs, open and closed, and events that came too late
    gold/           partial sums by minute, and snapshots of queue depths
    checkpoints/    offsets of the streaming queries
    staging/        files that are being written
    writers/        a locked file for each live writer, whose files must not be deleted
    lock            held by the pipeline that fills the lake

A local directory, or one that is mounted everywhere the workers run.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from tambomq.embedded.datadir import make_private
from tambomq.errors import SettingsError, TamboError
from tambomq.pipeline.ingest import gold, silver
from tambomq.pipeline.lake import folders, tables
from tambomq.pipeline.lake.files import sync
from tambomq.pipeline.lake.locks import oldest_ms, registered
from tambomq.pipeline.lake.log import LakeFile, LakeVersion, TableLog
from tambomq.pipeline.lake.path import lake_path
from tambomq.settings.sections import default_data_dir
from tambomq.spark.core.columns import Columns

log = logging.getLogger(__name__)

FORMAT: Final = 1
KIND: Final = "tambomq lake"
MARKER: Final = "lake.json"

BRONZE, OPEN, CLOSED, LATE, MINUTES, DEPTHS = (
    "bronze",
    "silver/open",
    "silver/closed",
    "silver/late",
    "gold/minutes",
    "gold/depths",
)
COLUMNS: Final[dict[str, Columns]] = {
    BRONZE: tables.BRONZE,
    OPEN: tables.STATE,
    CLOSED: tables.CLOSED,
    LATE: tables.BRONZE,
    MINUTES: tables.MINUTES,
    DEPTHS: tables.DEPTHS,
}
"""The columns of each table that has files."""
READABLE: Final = ("bronze", "silver", "gold", "late", "depths")


class Marker(msgspec.Struct, frozen=True):
    """The contents of ``lake.json``."""

    kind: str
    format: int
    id: str


def default_path() -> Path:
    """Return the default path of this user's lake."""
    return default_data_dir() / "lake"


class Lake:
    """An existing lake: see `make` and `open`."""

    def __init__(self, path: Path, id: str) -> None:
        self.path, self.id = path, id
        self.log = TableLog(path / "_log")

    @classmethod
    def make(cls, path: Path | str) -> Lake:
        """Return the lake at *path*; create it in an empty directory. Raises `SettingsError`."""
        path = lake_path(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not any(path.iterdir()):
                _write_marker(path)
            lake = cls.open(path, writable=True)
            # It holds message bodies. Not earlier: a directory that is no lake stays as it is.
            make_private(path)
            if path == default_path():
                make_private(path.parent)
        except OSError as error:
            raise _unusable(path, error) from error
        return lake

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Lake:
        """Return the lake at *path*; raise `SettingsError` if it is none or unreadable."""
        path = lake_path(path)
        try:
            marker = msgspec.json.decode((path / MARKER).read_bytes(), type=Marker)
        except FileNotFoundError:
            raise _foreign(path) from None
        except OSError as error:
            raise _unusable(path, error) from error
        except msgspec.MsgspecError:
            raise SettingsError(f"{path / MARKER} is not valid: choose another --lake") from None
        if marker.kind != KIND:
            raise SettingsError(f"{path / MARKER} is not valid: choose another --lake")
        if marker.format != FORMAT:
            raise SettingsError(
                f"the lake {path} is of format {marker.format}, this TamboMQ knows {FORMAT}: "
                "choose another --lake, or a matching version of TamboMQ"
            )
        if writable:
            _folders(path)
        return cls(path, marker.id)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the pipeline; raise `SettingsError` if another one has it."""
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsError(
                    f"another pipeline fills {self.path}: end it, or choose another --lake"
                ) from None
            for left in (self.path / "staging").iterdir():
                # Left by a pipeline that was killed: only the holder of the lock writes there.
                shutil.rmtree(left, ignore_errors=True)
            yield

    def read(
        self, spark: SparkSession, table: str, version: LakeVersion | None = None
    ) -> DataFrame:
        """Return one of `READABLE` as it is now, or was in *version*."""
        version = version or self.log.version()
        match table:
            case "bronze":
                return self.rows(spark, BRONZE, version.of(BRONZE))
            case "late":
                return self.rows(spark, LATE, version.of(LATE))
            case "depths":
                return self.rows(spark, DEPTHS, version.of(DEPTHS))
            case "silver":
                return silver.result_rows(self.states(spark, version))
            case "gold":
                live = self.rows(spark, OPEN, version.of(OPEN))
                counted = version.of(DEPTHS)
                depths = self.rows(spark, DEPTHS, counted) if counted else None
                return gold.result_rows(
                    self.rows(spark, MINUTES, version.of(MINUTES)), live, depths
                )
        raise SettingsError(f"no table {table!r} in a lake: there are {', '.join(READABLE)}")

    def files(self, table: str = BRONZE) -> list[Path]:
        """Return the Parquet files of the current version of a table with files of its own."""
        return [self.path / file.path for file in self.log.version().of(table)]

    def states(self, spark: SparkSession, version: LakeVersion) -> DataFrame:
        """Return all lifecycles, open and closed."""
        names = [column.name for column in tables.STATE]
        found = [self.rows(spark, each, version.of(each)).select(names) for each in (CLOSED, OPEN)]
        return found[0].unionByName(found[1])

    def rows(self, spark: SparkSession, table: str, files: Sequence[LakeFile]) -> DataFrame:
        """Return the rows of *files*; columns that an old file lacks are null."""
        ddl = COLUMNS[table].ddl
        if not files:
            return spark.createDataFrame([], ddl)
        by_name = [file for file in files if not folders.is_coded(file.path)]
        if len(by_name) == len(files):
            return self._read(spark, table, files, ddl)
        coded = [file for file in files if folders.is_coded(file.path)]
        found = self._read(spark, table, coded, f"{ddl}, {folders.NAME} STRING")
        rows = folders.named(found).select(*(column.name for column in COLUMNS[table]))
        return self.rows(spark, table, by_name).unionByName(rows) if by_name else rows

    def _read(
        self, spark: SparkSession, table: str, files: Sequence[LakeFile], ddl: str
    ) -> DataFrame:
        paths = [str(self.path / file.path) for file in files]
        return spark.read.schema(ddl).option("basePath", str(self.path / table)).parquet(*paths)

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield a staging directory; files that are not adopted are deleted at the end."""
        place = self.path / "staging" / uuid4().hex
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def adopt(self, table: str, written: Path) -> list[LakeFile]:
        """Move the files in *written* into *table*; the caller commits them to the log."""
        found: list[LakeFile] = []
        try:
            self._adopt(table, written, found)
        except BaseException:
            self.discard(found)
            raise
        return found

    def _adopt(self, table: str, written: Path, found: list[LakeFile]) -> None:
        for path in sorted(written.rglob("*.parquet")):
            rows = pyarrow.parquet.read_metadata(path).num_rows
            if not rows:
                continue
            folder = self.path / table / path.parent.relative_to(written)
            folder.mkdir(parents=True, exist_ok=True)
            kept = folder / f"{uuid4().hex}.parquet"
            size = path.stat().st_size
            sync(path)
            path.rename(kept)
            found.append(LakeFile(kept.relative_to(self.path).as_posix(), rows, size))
            sync(folder)

    def writing(self) -> AbstractContextManager[None]:
        """Register as a writer: `compact.vacuum` keeps files that are written in the block.

        However long that takes, and although no entry of the log has them yet.
        """
        return registered(self.path / "writers")

    def writing_since_ms(self) -> int | None:
        """Return when the oldest live writer started; `None` without writers."""
        return oldest_ms(self.path / "writers")

    def discard(self, files: Iterable[LakeFile]) -> None:
        """Delete *files* of a change that failed, unless the log has them.

        It may have them: a commit may be interrupted after its entry was written. Raises nothing:
        files that remain are deleted by `compact.vacuum`.
        """
        paths = [file.path for file in files]
        try:
            for path in {*paths} - self.log.named(paths):
                (self.path / path).unlink(missing_ok=True)
        except (OSError, TamboError) as error:
            log.warning("files of a change that failed are left in %s: %s", self.path, error)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint directory of the pipeline's query."""
        return self.path / "checkpoints" / "bronze"


def is_full(error: BaseException) -> bool:
    """Whether *error* or its cause is a full disk."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    text = str(error)
    return any(word in text for word in ("No space left", "Disk quota exceeded", "File too large"))


def _write_marker(path: Path) -> None:
    # The folders come last: a directory with a marker is a lake, even after a crash here.
    marker = Marker(KIND, FORMAT, uuid4().hex[:12])
    made = path / f".{MARKER}"
    made.write_bytes(msgspec.json.format(msgspec.json.encode(marker)) + b"\n")
    sync(made)
    made.rename(path / MARKER)
    sync(path)


def _folders(path: Path) -> None:
    try:
        for name in ("_log", "checkpoints", "staging", *COLUMNS):
            (path / name).mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK) or not os.access(path / "_log", os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> SettingsError:
    why = (error.strerror or str(error)).lower()
    return SettingsError(f"cannot use {path} as a lake: {why}; choose another --lake")


def _foreign(path: Path) -> SettingsError:
    if not path.exists():
        return SettingsError(f"there is no lake at {path}: `tambo pipeline run` creates one")
    return SettingsError(
        f"{path} has files and is no lake (it has no {MARKER}): choose another --lake"
    )
