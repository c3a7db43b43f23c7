"""Locks on files of a lake (flock): commits against dropping, and a register of live writers.

A lock ends with the process that holds it, however that ends, so nothing here has to expire.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from tambomq.errors import SettingsError


@contextmanager
def shared_lock(path: Path) -> Iterator[None]:
    """Hold a shared lock on *path*; wait while another process holds it exclusively."""
    with path.open("ab") as file:
        _flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Try to lock *path* exclusively, without waiting; yield whether that succeeded."""
    with path.open("ab") as file:
        yield _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def registered(folder: Path) -> Iterator[None]:
    """Register a writer in *folder*, for `oldest_ms`, until the block ends."""
    folder.mkdir(exist_ok=True)
    while True:
        path = folder / uuid4().hex
        with path.open("xb") as file:
            _flock(file, fcntl.LOCK_EX)
            # `oldest_ms` may have removed the file before it was locked: register again.
            if not path.exists():
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def oldest_ms(folder: Path) -> int | None:
    """Return when the oldest live writer in *folder* started, by the file system's clock.

    `None` without writers. Files that dead writers left in *folder* are removed.
    """
    started = [found for path in _listed(folder) if (found := _started_ms(path)) is not None]
    return min(started, default=None)


def _listed(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()]
    except FileNotFoundError:
        return []


def _started_ms(path: Path) -> int | None:
    try:
        with path.open("rb+") as file:
            if _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                path.unlink(missing_ok=True)
                return None
            return os.fstat(file.fileno()).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None


def _flock(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS):
            raise SettingsError(
                f"{Path(file.name).parent} does not support file locks: "
                "put the lake on another file system"
            ) from error
        raise
    return True
