"""Finds changed files by looking at them again and again: works on every file system.

A container's mounts and network drives report no changes, so nothing is subscribed to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

Stamp = tuple[int, int, int] | None
"""Time of the last change in ns, size, and inode; nothing for a file that is not there."""


class FileWatch:
    """Files, and how they were when last looked at."""

    def __init__(self) -> None:
        self._stamps: dict[str, Stamp] = {}

    def add(self, files: Iterable[str]) -> None:
        """Watch *files* too."""
        for file in files:
            self._stamps.setdefault(file, _stamp(file))

    def changed(self) -> list[str]:
        """Return the files that have changed since the last call."""
        found = []
        for file, before in self._stamps.items():
            if (now := _stamp(file)) != before:
                self._stamps[file] = now
                found.append(file)
        return found


def _stamp(file: str) -> Stamp:
    try:
        found = os.stat(file)  # noqa: PTH116  (many times a second)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
