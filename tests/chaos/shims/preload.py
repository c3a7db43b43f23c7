"""Compiles a library of this folder, once for each text of its source, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_OPTIONS = ("-O1", "-Wall", "-Werror", "-shared", "-fPIC")


def unavailable() -> str:
    """Return why no library can be made or loaded on this machine; nothing if it can."""
    if sys.platform != "linux":
        return "needs Linux"
    return "" if shutil.which("cc") else "needs a C compiler, as cc"


def library(name: str) -> Path:
    """Return the library made of ``<name>.c``. Raises `RuntimeError` where it is `unavailable`."""
    if reason := unavailable():
        raise RuntimeError(reason)
    source = Path(__file__).with_name(f"{name}.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    compiled = _cache() / f"{name}-{digest}.so"
    if not compiled.exists():
        with tempfile.TemporaryDirectory(dir=compiled.parent) as folder:
            fresh = Path(folder) / compiled.name
            subprocess.run(["cc", *_OPTIONS, "-o", fresh, source, "-ldl"], check=True)
            fresh.replace(compiled)
    return compiled


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "tambomq-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
