"""Writes a backup: streams the data, has a server load it, and then gives the file its name."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tambomq.backup import trailer
from tambomq.backup.model import BackupCounts, BackupManifest
from tambomq.backup.rdb import read_head
from tambomq.backup.scratch import loaded_contents
from tambomq.backup.unfinished import UnfinishedFile, refuse_existing
from tambomq.errors import BackupError, StoreError, StoreUnavailable
from tambomq.store.endpoint import Endpoint
from tambomq.store.snapshot import stream_snapshot

_NEW_NAME: Final = "tambo-%Y%m%dT%H%M%SZ.rdb"


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """Called while a backup is copied, with bytes, and while it is loaded, with the percentage."""

    on_bytes: Callable[[int], None] = lambda _: None
    on_loading: Callable[[float], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A complete backup, and what it says about itself."""

    path: Path
    bytes: int
    manifest: BackupManifest


def target_path(given: Path) -> Path:
    """Return the file to write: *given*, or a new name in it if it is a directory."""
    return given / time.strftime(_NEW_NAME, time.gmtime()) if given.is_dir() else given


def write_backup(
    source: Endpoint,
    target: Path,
    *,
    version: str,
    force: bool = False,
    verify: bool = True,
    progress: BackupProgress = BackupProgress(),  # noqa: B008  (it has no state)
) -> BackupResult:
    """Write the data of *source* to *target*. Raises `BackupError`, `StoreError`.

    Complete or not there: *target* gets its name when everything is on the disk and, with
    *verify*, has been loaded by a server. *version* is that of the writer.
    """
    if not force:
        refuse_existing(target)
    try:
        with UnfinishedFile(target) as draft:
            size, digest = _copied(source, draft, progress)
            contents = _verified(draft.path, source.db, progress) if verify else None
            manifest = _manifest(draft.path, version, size, digest, source.db, contents)
            draft.file.write(trailer.encode(manifest))
            draft.publish(force=force)
            return BackupResult(target, target.stat().st_size, manifest)
    except OSError as error:
        raise BackupError(f"cannot write {target}: {error.strerror or error}") from error


def _copied(source: Endpoint, draft: UnfinishedFile, progress: BackupProgress) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    try:
        for piece in stream_snapshot(source):
            draft.file.write(piece)
            digest.update(piece)
            size += len(piece)
            progress.on_bytes(size)
    except StoreUnavailable:
        raise
    except StoreError as error:
        raise BackupError(
            f"{source} gives no copy of its data: {error}; the user needs the right to SYNC and "
            "REPLCONF. An embedded server is backed up by its --data-dir"
        ) from error
    draft.sync()
    return size, digest.hexdigest()


def _verified(rdb: Path, db: int, progress: BackupProgress) -> BackupCounts:
    try:
        return loaded_contents(rdb, db=db, on_loading=progress.on_loading)
    except BackupError as error:
        raise BackupError(f"{error}; --no-verify writes the backup all the same") from error


def _manifest(
    rdb: Path, version: str, size: int, digest: str, db: int, contents: BackupCounts | None
) -> BackupManifest:
    head = read_head(rdb)
    return BackupManifest(
        taken_ms=head.taken_ms,
        tambo=version,
        server=head.server,
        rdb_bytes=size,
        sha256=digest,
        db=db,
        contents=contents,
    )
