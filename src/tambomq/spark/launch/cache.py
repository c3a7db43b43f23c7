"""Where things are kept that are made once. To delete them costs time, and nothing else."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path


def folder() -> Path:
    """Return a directory to write to: ``$XDG_CACHE_HOME/tambomq``, else ``~/.cache/tambomq``.

    A user without a home that can be written to has one that lasts as long as the process.
    """
    return _lasting() or _passing()


def lasts() -> bool:
    """Whether what is put there now can be found by another process later."""
    return _lasting() is not None


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file that appears complete or not at all, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _lasting() -> Path | None:
    try:
        found = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tambomq"
        found.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return found if os.access(found, os.W_OK | os.X_OK) else None


@functools.cache
def _passing() -> Path:
    # Not one with a name that others can guess: a program is started from it.
    made = tempfile.mkdtemp(prefix="tambomq-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
