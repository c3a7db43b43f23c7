"""Files of a lake that are there as a whole or not at all, and stay after a power cut."""

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
"""How the name of a file begins that is being written, and read by nobody."""


def put(path: Path, raw: bytes) -> bool:
    """Write *path* as a whole; false if it is there. Raises no failure once it is there.

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
        # A draft that cannot be removed harms nobody.
        with suppress(OSError):
            made.unlink(missing_ok=True)
    if is_ours:
        try:
            sync(path.parent)
        except OSError as error:
            log.warning("%s is written, but may not outlast a power cut: %s", path, error)
    return is_ours


def sync(path: Path) -> None:
    """Return when *path*, a file or a directory, is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _link(made: Path, path: Path) -> bool:
    """Name *made* also *path*; false if something else has that name."""
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
                f"{path.parent} knows no hard links: put the lake on another file system"
            ) from error
        raise
    return True


def _is_same(made: Path, path: Path) -> bool:
    try:
        return path.samefile(made)
    except OSError:
        return False
