"""The unfinished file of a backup: nobody takes it for a whole one, and no two share it.

It is locked while its writer lives. One that a killed writer has left is removed by the next.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from tambomq.backup.appendonly import sync_folder
from tambomq.errors import BackupError

NAME: Final = ".tambo-backup.partial"
# File systems that have no hard links say one of these.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class UnfinishedFile:
    """A new file in the folder of *target*, which becomes *target* when it is complete.

    A context manager: what is not published by its end is removed. Raises `BackupError` if
    another backup is being written to this folder, `OSError`.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.parent / NAME
        self.file: BinaryIO = _opened(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Still locked while it is removed.
        if _is_at(self.path, self.file):
            self.path.unlink(missing_ok=True)
        with suppress(OSError):
            self.file.close()

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def publish(self, *, force: bool) -> None:
        """Give the file its name; with *force* it replaces another. Raises `BackupError`."""
        self.sync()
        if force:
            self.path.replace(self.target)
        else:
            self._link()
        sync_folder(self.target.parent)

    def _link(self) -> None:
        refuse_existing(self.target)
        try:
            self.target.hardlink_to(self.path)
        except FileExistsError:
            refuse_existing(self.target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.path.replace(self.target)


def refuse_existing(target: Path) -> None:
    """Raise `BackupError` if there is a *target*."""
    if os.path.lexists(target):
        raise BackupError(f"{target} exists: choose another name, or replace it with --force")


def _opened(path: Path) -> BinaryIO:
    while True:
        try:
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError:
            _remove_stale(path)
            continue
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_at(path, file):
            return file
        # Another took it for stale before it was locked.
        file.close()


def _remove_stale(path: Path) -> None:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                path.unlink()
    except FileNotFoundError:
        pass
    except BlockingIOError as error:
        raise BackupError(f"another backup is being written to {path.parent}") from error


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
