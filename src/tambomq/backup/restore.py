"""Restores a backup: copies it beside the data, has a server load the copy, replaces the data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tambomq.backup import appendonly, trailer
from tambomq.backup.model import BackupCounts, BackupManifest
from tambomq.backup.rdb import read_head
from tambomq.backup.scratch import loaded_contents
from tambomq.backup.source import refuse_foreign
from tambomq.backup.write import BackupProgress
from tambomq.embedded.datadir import DataDir
from tambomq.errors import BackupError, DataDirBusy

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored, or checked."""

    manifest: BackupManifest | None
    """`None` for an RDB file that `tambo backup` has not written."""
    contents: BackupCounts
    aside: Path | None = None
    """The data directory that the old data is in now."""


def check_backup(backup: Path, progress: BackupProgress = BackupProgress()) -> RestoreResult:  # noqa: B008  (it has no state)
    """Check *backup* as `restore_backup` does, and change nothing. Raises `BackupError`."""
    try:
        manifest = _manifest(backup)
        _copy(backup, None, manifest, progress)
        return RestoreResult(manifest, _verified(backup, None, manifest, progress))
    except OSError as error:
        raise BackupError(f"cannot read {backup}: {error.strerror or error}") from error


def restore_backup(
    backup: Path,
    data_dir: Path,
    *,
    force: bool = False,
    progress: BackupProgress = BackupProgress(),  # noqa: B008  (it has no state)
) -> RestoreResult:
    """Make *backup* the data of *data_dir*. Raises `BackupError`, `DataDirBusy`.

    Complete or not done: *backup* is verified before anything is replaced. With *force* there may
    be data already, which is set aside.
    """
    try:
        manifest = _manifest(backup)
        refuse_foreign(data_dir)
        with _locked(data_dir):
            if appendonly.has_files(data_dir) and not force:
                raise BackupError(
                    f"{data_dir} has data: restore to another --data-dir, or set that data aside "
                    "with --force"
                )
            draft = appendonly.draft(data_dir)
            try:
                _copy(backup, draft, manifest, progress)
                found = _verified(backup, draft, manifest, progress)
                return RestoreResult(manifest, found, appendonly.replace(data_dir))
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise BackupError(f"cannot restore {backup}: {error.strerror or error}") from error


def _manifest(backup: Path) -> BackupManifest | None:
    manifest = trailer.read(backup)
    if manifest is None:
        read_head(backup)
    return manifest


def _copy(
    backup: Path, draft: Path | None, manifest: BackupManifest | None, progress: BackupProgress
) -> None:
    """Copy the RDB file in *backup* to *draft*, if there is one. Raises `BackupError`."""
    digest, done = hashlib.sha256(), 0
    left = manifest.rdb_bytes if manifest else backup.stat().st_size
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    target = os.open(draft or os.devnull, flags, 0o600)
    with backup.open("rb") as source, os.fdopen(target, "wb") as out:
        while left and (piece := source.read(min(_CHUNK, left))):
            out.write(piece)
            digest.update(piece)
            done, left = done + len(piece), left - len(piece)
            progress.on_bytes(done)
        if draft is not None:
            out.flush()
            os.fsync(out.fileno())
    if manifest is not None and digest.hexdigest() != manifest.sha256:
        raise BackupError(f"{backup} is damaged: its data has another checksum")


def _verified(
    backup: Path, draft: Path | None, manifest: BackupManifest | None, progress: BackupProgress
) -> BackupCounts:
    # A backup has something after its data, which a base must not have.
    as_base = draft is not None or manifest is None
    db = manifest.db if manifest else 0
    found = loaded_contents(draft or backup, db=db, as_base=as_base, on_loading=progress.on_loading)
    expected = manifest.contents if manifest else None
    if expected and (difference := found.difference(expected)):
        raise BackupError(f"{backup} was loaded with {difference}")
    return found


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    """Keep servers from starting in *data_dir*. Raises `DataDirBusy` if one runs."""
    directory = DataDir(data_dir)
    directory.acquire()
    try:
        lock = directory.server_lock()
        if lock is None:
            raise DataDirBusy(str(directory.path), "a server that has lost its owner")
        try:
            yield
        finally:
            os.close(lock)
    finally:
        directory.release()
