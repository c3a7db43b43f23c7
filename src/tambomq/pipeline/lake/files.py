"""Atomic, durable file writes for the lake: whole or not at all, also after a power cut."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from tambomq.errors import SettingsError

log = logging.getLogger(__name__)

DRAFT: Final = "."
"""The first character of the names of files that are being written; readers ignore them."""


def put(path: Path, raw: bytes) -> bool:
    """Write *path* atomically; false if it exists. Raises no failure once it is written.

    A KeyboardInterrupt may come at any time.
    """
    made = path.parent / f"{DRAFT}{uuid4().hex}"
    try:
        with made.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        is_ours = _link(made, path)
    finally:
        # A draft that cannot be removed is harmless: readers ignore it.
        with suppress(OSError):
            made.unlink(missing_ok=True)
    if is_ours:
        try:
            sync(path.parent)
        except OSError as error:
            log.warning("%s is written, but may not outlast a power cut: %s", path, error)
    return is_ours


def sync(path: Path) -> None:
    """Flush *path*, a file or a directory, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _link(made: Path, path: Path) -> bool:
    """Link *made* to *path*; false if another file has that name."""
    try:
        os.link(made, path)
    except OSError as error:
        # A network file system may fail, or say "exists", after it has made the link.
        if _is_same(made, path):
            return True
        if isinstance(error, FileExistsError):
            return False
        if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise SettingsError(
                f"{path.parent} does not support hard links: put the lake on another file system"
            ) from error
        raise
    return True


def _is_same(made: Path, path: Path) -> bool:
    try:
        return path.samefile(made)
    except OSError:
        return False
