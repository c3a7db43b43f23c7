"""The cache directory of files that are made once. Deleting them is always safe."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path


def folder() -> Path:
    """Return the cache directory: ``$XDG_CACHE_HOME/tambomq``, else ``~/.cache/tambomq``.

    If neither is writable, it is a temporary one, deleted when the process ends.
    """
    return _lasting() or _passing()


def lasts() -> bool:
    """Whether cached files outlive the process."""
    return _lasting() is not None


def put(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file atomically, even if other processes write it too."""
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
    # With a name that others cannot guess: programs are started from it.
    made = tempfile.mkdtemp(prefix="tambomq-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
