"""The data directory of the embedded server, and its locks.

Two locks, both `flock`: the kernel drops them when their holders die, so none is ever stale.

=============== ======================== ====================================================
file            held by                  says
=============== ======================== ====================================================
``lock``        the owner, alone         in use; the file names the owner
``server.lock`` supervisor and server    a server still runs, or is shutting down
=============== ======================== ====================================================

So a new owner is refused at once while the old one lives, and waits only while the server of a
dead owner shuts down.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from tambomq.errors import DataDirBusy, EmbeddedError
from tambomq.store.local_login import SERVER_LOCK, SOCKET

_log = logging.getLogger(__name__)

_LOG_LINES: Final = 4


def make_private(path: Path) -> None:
    """Create the directory *path* if needed, and restrict it to its owner.

    A directory of another user, or a shared one such as /tmp, is left as it is, with a warning.
    Raises `OSError`.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o077:
        return
    is_ours = not mode & stat.S_ISVTX
    try:
        if is_ours:
            path.chmod(0o700)
    except PermissionError:
        is_ours = False
    if not is_ours:
        _log.warning("other users can read %s (mode %03o): use a directory of your own", path, mode)


class DataDir:
    """A directory that one process at a time serves from."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock: int | None = None

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.path / "valkey.log"

    def open_log(self) -> BinaryIO:
        """Open the log for appending; a new one is readable by its owner only."""
        return os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def last_words(self, start: int) -> str:
        """Return the last lines of the log after byte *start*."""
        with self.log.open("rb") as log:
            log.seek(start)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-_LOG_LINES:]) or "nothing"

    @property
    def socket(self) -> Path:
        """The server's Unix socket, if the file system allows one."""
        return self.path / SOCKET

    def acquire(self) -> None:
        """Take the lock, creating the directory if needed. Raises `DataDirBusy`."""
        if self._lock is not None:
            return
        try:
            make_private(self.path)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise EmbeddedError(f"cannot use {self.path} for data: {exc.strerror}") from exc
        if not _try_lock(lock):
            os.close(lock)
            raise DataDirBusy(str(self.path), self._owner())
        self._lock = lock
        self.sign("")

    def sign(self, url: str) -> None:
        """Write our pid and *url*, for the error of processes that find the directory busy."""
        if self._lock is not None:
            text = f"process {os.getpid()}" + (f" at {url}" if url else "")
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{text}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def server_lock(self) -> int | None:
        """Return a locked file to pass down to the server; the caller closes its own copy.

        ``None`` while a previous server still runs.
        """
        lock = os.open(self.path / SERVER_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if _try_lock(lock):
            return lock
        os.close(lock)
        return None

    def _owner(self) -> str:
        try:
            return (self.path / "lock").read_text("utf-8").strip() or "another process"
        except OSError:
            return "another process"


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
