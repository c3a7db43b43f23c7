"""Defaults that depend on the machine: the data directory, and the memory limit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_MIB: Final = 1 << 20
_ROOT: Final = Path("/")


def default_data_dir() -> Path:
    """Return the default data directory of this user."""
    if given := os.environ.get("XDG_DATA_HOME"):
        return Path(given) / "tambomq"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tambomq"
    return Path.home() / ".local" / "share" / "tambomq"


def half_of_memory() -> int:
    """Return half of the memory that this process may use, in bytes, by whole MiB."""
    return max(memory_bytes() // 2 // _MIB, 1) * _MIB


def memory_bytes(root: Path = _ROOT) -> int:
    """Return the machine's memory, or what a container is limited to if that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups, of both versions, and of their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        # A container often sees its own group as the root, under the path it has outside.
        group = top / path.lstrip("/")
        for each in (group, *group.parents):
            # A file may be missing, or say "max".
            with suppress(OSError, ValueError):
                yield int((each / name).read_text("utf-8"))
            if each == top:
                break
