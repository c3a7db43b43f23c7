"""The lake: one directory with tables of Parquet files, and the log that says which files count.

    lake.json       that it is one, of which format, and its id
    _log/           which files the tables have (see `table_log`)
    bronze/         what was read, as it was
    silver/         lives of jobs: open, closed, and what was told too late
    gold/           partial sums by minute, and how much was in each queue
    checkpoints/    how far queries have come
    staging/        what is being written
    writers/        who writes now: a locked file each, so that nobody deletes what it has written
    lock            held by the pipeline that fills it

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

from tambomq.errors import SettingsError, TamboError
from tambomq.pipeline import folders, gold, silver, tables
from tambomq.pipeline.lake_files import sync
from tambomq.pipeline.lake_locks import oldest_ms, registered
from tambomq.pipeline.lake_path import lake_path
from tambomq.pipeline.table_log import File, Log, Version
from tambomq.sections import default_data_dir
from tambomq.spark.columns import Columns
from tambomq.store.datadir import make_private

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
"""By table with files of its own."""
READABLE: Final = ("bronze", "silver", "gold", "late", "depths")


class Marker(msgspec.Struct, frozen=True):
    """What makes a directory a lake."""

    kind: str
    format: int
    id: str


def default_path() -> Path:
    """Return where this user's lake is unless said otherwise."""
    return default_data_dir() / "lake"


class Lake:
    """A lake that exists: see `make` and `open`."""

    def __init__(self, path: Path, id: str) -> None:
        self.path, self.id = path, id
        self.log = Log(path / "_log")

    @classmethod
    def make(cls, path: Path | str) -> Lake:
        """Return the lake at *path*, made if nothing is there. Raises `SettingsError`."""
        path = lake_path(path)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not any(path.iterdir()):
                _mark(path)
            lake = cls.open(path, writable=True)
            # It holds the bodies of messages. Only now is it known to be a lake.
            make_private(path)
            if path == default_path():
                make_private(path.parent)
        except OSError as error:
            raise _unusable(path, error) from error
        return lake

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = False) -> Lake:
        """Return the lake at *path*; raise `SettingsError` if there is none, or not one for us."""
        path = lake_path(path)
        try:
            marker = msgspec.json.decode((path / MARKER).read_bytes(), type=Marker)
        except FileNotFoundError:
            raise _foreign(path) from None
        except OSError as error:
            raise _unusable(path, error) from error
        except msgspec.MsgspecError:
            raise SettingsError(f"{path / MARKER} is not a lake's: choose another --lake") from None
        if marker.kind != KIND:
            raise SettingsError(f"{path / MARKER} is not a lake's: choose another --lake")
        if marker.format != FORMAT:
            raise SettingsError(
                f"the lake {path} is of format {marker.format}, this TamboMQ knows {FORMAT}: "
                "choose another --lake, or a TamboMQ that fits"
            )
        if writable:
            _folders(path)
        return cls(path, marker.id)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other pipeline fill it meanwhile; raise `SettingsError` if one does."""
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsError(
                    f"another pipeline fills {self.path}: end it, or choose another --lake"
                ) from None
            for left in (self.path / "staging").iterdir():
                # Of one that died: nobody else writes there.
                shutil.rmtree(left, ignore_errors=True)
            yield

    def read(self, spark: SparkSession, table: str, version: Version | None = None) -> DataFrame:
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
                return silver.shown(self.states(spark, version))
            case "gold":
                live = self.rows(spark, OPEN, version.of(OPEN))
                counted = version.of(DEPTHS)
                depths = self.rows(spark, DEPTHS, counted) if counted else None
                return gold.shown(self.rows(spark, MINUTES, version.of(MINUTES)), live, depths)
        raise SettingsError(f"no table {table!r} in a lake: there are {', '.join(READABLE)}")

    def states(self, spark: SparkSession, version: Version) -> DataFrame:
        """Return all lives there are, open and closed."""
        names = [column.name for column in tables.STATE]
        found = [self.rows(spark, each, version.of(each)).select(names) for each in (CLOSED, OPEN)]
        return found[0].unionByName(found[1])

    def rows(self, spark: SparkSession, table: str, files: Sequence[File]) -> DataFrame:
        """Return the rows of *files*; a column that a file is too old to have is null."""
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

    def _read(self, spark: SparkSession, table: str, files: Sequence[File], ddl: str) -> DataFrame:
        paths = [str(self.path / file.path) for file in files]
        return spark.read.schema(ddl).option("basePath", str(self.path / table)).parquet(*paths)

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield a directory to write into; what was not adopted from it is dropped."""
        place = self.path / "staging" / uuid4().hex
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def adopt(self, table: str, written: Path) -> list[File]:
        """Move what was *written* for *table* where it stays; the log has yet to say so."""
        found: list[File] = []
        try:
            self._adopt(table, written, found)
        except BaseException:
            self.discard(found)
            raise
        return found

    def _adopt(self, table: str, written: Path, found: list[File]) -> None:
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
            found.append(File(kept.relative_to(self.path).as_posix(), rows, size))
            sync(folder)

    def writing(self) -> AbstractContextManager[None]:
        """Be known as a writer: what is written from now to the end of the block is not deleted.

        Whatever time that takes, and although no entry of the log names it yet.
        """
        return registered(self.path / "writers")

    def writing_since_ms(self) -> int | None:
        """Return since when the oldest of those who write now does; none if nobody does."""
        return oldest_ms(self.path / "writers")

    def discard(self, files: Iterable[File]) -> None:
        """Delete *files* of a change that failed, unless the log counts them all the same.

        A commit may have been interrupted after its entry counted. Raises nothing: what is left
        is deleted by `compact.vacuum`.
        """
        paths = [file.path for file in files]
        try:
            for path in {*paths} - self.log.named(paths):
                (self.path / path).unlink(missing_ok=True)
        except (OSError, TamboError) as error:
            log.warning("files of a change that failed are left in %s: %s", self.path, error)

    @property
    def checkpoint(self) -> Path:
        """Where the pipeline's own query keeps how far it has come."""
        return self.path / "checkpoints" / "bronze"


def is_full(error: BaseException) -> bool:
    """Whether *error*, or what it came from, is that there is no room on the disk."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    text = str(error)
    return any(word in text for word in ("No space left", "Disk quota exceeded", "File too large"))


def _mark(path: Path) -> None:
    # The folders come last: a directory with a marker is a lake, whoever dies in between.
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
        return SettingsError(f"there is no lake at {path}: `tambo pipeline run` makes one")
    return SettingsError(
        f"{path} has files and is no lake (it has no {MARKER}): choose another --lake"
    )
