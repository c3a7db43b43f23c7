"""The redrives that this user has begun: an own record of their SQL, out of reach of Redis.

What a redrive was told stands beside its queue, where producers may write. Going on with one runs
SQL that was found there, so it is run only if its digest is here, or its words are given again.
An empty file for each, named by the digest; nobody else may write into the directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Final

import msgspec

from tambomq.pipeline.address import Address
from tambomq.store.redrives import Redrive

KEEP_S: Final = 30 * 24 * 3600
"""Redis forgets a redrive a week after its last move."""


def default_path() -> Path:
    """Return where this user's record is."""
    given = os.environ.get("XDG_STATE_HOME")
    home = Path(given) if given else Path.home() / ".local" / "state"
    return home / "tambomq" / "redrives"


class Issued:
    """The record in one directory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def note(self, queue: Address, told: Redrive) -> None:
        """Remember that this user has begun *told*. Raises `OSError`."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._prune()
        path = self.path / digest(queue, told)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.utime(path)

    def knows(self, queue: Address, told: Redrive) -> bool:
        """Whether this user has begun *told*, with these words."""
        try:
            folder = self.path.stat()
            found = (self.path / digest(queue, told)).stat()
        except OSError:
            return False
        is_private = not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        return is_private and {folder.st_uid, found.st_uid} == {os.geteuid()}

    def _prune(self) -> None:
        oldest = time.time() - KEEP_S
        for path in self.path.iterdir():
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)


def digest(queue: Address, told: Redrive) -> str:
    """Return what tells the SQL of a redrive from any other."""
    words = [str(queue), told.id, told.where, told.rewrite]
    return hashlib.sha256(msgspec.json.encode(words)).hexdigest()
