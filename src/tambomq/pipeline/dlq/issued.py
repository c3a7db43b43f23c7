"""A local record of the redrives that this user has started, so that SQL in Redis is not trusted.

The options of a redrive, with its SQL, are stored beside its queue, where producers can write too.
Resuming a redrive would run that SQL, so it runs only if its digest is recorded here, or if the
user gives the same SQL again. The record is an empty file for each redrive, named by the digest, in
a directory that only the user can write.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Final

import msgspec

from tambomq.bulk.redrives import Redrive
from tambomq.pipeline.address import Address

KEEP_S: Final = 30 * 24 * 3600
"""Longer than Redis keeps a redrive: a week after its last move."""


def default_path() -> Path:
    """Return where this user's record is."""
    given = os.environ.get("XDG_STATE_HOME")
    home = Path(given) if given else Path.home() / ".local" / "state"
    return home / "tambomq" / "redrives"


class IssuedRedrives:
    """The record in one directory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def note(self, queue: Address, redrive: Redrive) -> None:
        """Record that this user has started *redrive*. Raises `OSError`."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune()
        path = self.path / digest(queue, redrive)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.utime(path)

    def knows(self, queue: Address, redrive: Redrive) -> bool:
        """Whether this user has started *redrive* with the same SQL."""
        try:
            folder = self.path.stat()
            found = (self.path / digest(queue, redrive)).stat()
        except OSError:
            return False
        is_private = not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return is_private and {folder.st_uid, found.st_uid} == {os.geteuid()}

    def _prune(self) -> None:
        oldest = time.time() - KEEP_S
        for path in self.path.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


def digest(queue: Address, redrive: Redrive) -> str:
    """Return a digest of the queue, the id and the SQL of a redrive."""
    words = [str(queue), redrive.id, redrive.where, redrive.rewrite]
    return hashlib.sha256(msgspec.json.encode(words)).hexdigest()
