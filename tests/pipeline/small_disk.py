"""Disks that are really full: a file system of some MB or, where none can be mounted, a limit."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pyspark import SparkContext

SIZE = 32 << 20


class Disk(Protocol):
    """Where a lake may be, until there is no room."""

    path: Path

    def leave(self, size: int) -> None:
        """Leave room for *size* bytes."""

    def clear(self) -> None:
        """Make room."""


class Mounted:
    """A file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def leave(self, size: int) -> None:
        """Fill the disk with a file, all but *size* bytes."""
        self.clear()
        found = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - size)

    def clear(self) -> None:
        """Remove that file."""
        self._filler.unlink(missing_ok=True)


class Limited:
    """A disk on which Spark may write no file that is longer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        gateway: Any = SparkContext._gateway
        self._java: int = gateway.proc.pid
        self._before = resource.prlimit(self._java, resource.RLIMIT_FSIZE)

    def leave(self, size: int) -> None:
        """Limit each file that Spark writes to *size* bytes."""
        resource.prlimit(self._java, resource.RLIMIT_FSIZE, (size, self._before[1]))

    def clear(self) -> None:
        """Remove the limit."""
        resource.prlimit(self._java, resource.RLIMIT_FSIZE, self._before)


@contextmanager
def small_disk(path: Path) -> Iterator[Disk]:
    """A disk at *path*: a file system, if one may be mounted there."""
    path.mkdir()
    words = ("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path))
    try:
        mounted = subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield Mounted(path) if mounted else Limited(path)
    finally:
        if mounted:
            subprocess.run(("umount", "-l", str(path)), check=True)


@contextmanager
def limited_disk(path: Path) -> Iterator[Disk]:
    """A small disk at *path* by a file size limit, which needs no privileges; lifted at the end."""
    path.mkdir()
    disk = Limited(path)
    try:
        yield disk
    finally:
        disk.clear()
