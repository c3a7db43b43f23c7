"""System calls that fail, are interrupted or are the last of a process, at any point of the work.

What this process asks of the disk is counted: the n-th such call can be made to fail before or
after it took effect. A process that is killed does nothing more: all later calls are refused.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

import pyarrow.parquet as pq
import pytest

READS: Final = ((os, "listdir"), (os, "scandir"), (os, "stat"), (os, "open"))
WRITES: Final = (
    *((os, name) for name in ("fsync", "link", "unlink", "rename", "mkdir", "rmdir")),
    *((pq.ParquetWriter, name) for name in ("__init__", "write_table", "close")),
    (fcntl, "flock"),
)


class Killed(BaseException):
    """The process has ended; what unwinds is only this test's stack."""


@dataclass(frozen=True)
class Kind:
    """One way in which a call goes wrong."""

    error: Callable[[], BaseException]
    after: bool = False
    """It takes effect first."""
    writes_only: bool = False
    kills: bool = False


KINDS: Final = {
    "ENOSPC": Kind(lambda: OSError(errno.ENOSPC, "No space left on device"), writes_only=True),
    "EIO": Kind(lambda: OSError(errno.EIO, "Input/output error")),
    "EIO late": Kind(lambda: OSError(errno.EIO, "Input/output error"), True, writes_only=True),
    "SIGINT": Kind(KeyboardInterrupt),
    "SIGINT late": Kind(KeyboardInterrupt, True, writes_only=True),
    # Before a call that only reads it leaves what it leaves before the next one that writes.
    "SIGKILL": Kind(Killed, writes_only=True, kills=True),
}


@dataclass
class Faults:
    """Counts calls; the one of number *at* goes wrong as *kind* says."""

    at: int = -1
    kind: Kind = KINDS["EIO"]
    calls: list[bool] = field(default_factory=list)
    """Whether each was one that writes."""
    dead: bool = False

    def run(self, real: Callable[..., Any], writes: bool, *args: Any, **more: Any) -> Any:
        """Make a call, unless it is to go wrong."""
        if self.dead:
            raise Killed
        self.calls.append(writes)
        if len(self.calls) - 1 != self.at:
            return real(*args, **more)
        self.dead = self.kind.kills
        if self.kind.after and hasattr(made := real(*args, **more), "close"):
            made.close()
        raise self.kind.error()

    def wrap(self, real: Callable[..., Any], writes: bool) -> Callable[..., Any]:
        """Return *real*, counted."""

        def counted(*args: Any, **more: Any) -> Any:
            return self.run(real, writes, *args, **more)

        return counted

    def opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return `io.open`, counted, whose files count what is written to them."""

        def counted(path: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            writes = any(letter in mode for letter in "wxa+")
            found = self.run(real, writes, path, mode, *args, **more)
            return _File(found, self) if writes else found

        return counted


class _File:
    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, raw: bytes) -> int:
        return int(self._faults.run(self._file.write, True, raw))


@contextmanager
def injected(at: int = -1, kind: str = "EIO") -> Iterator[Faults]:
    """Count what is asked of the disk meanwhile; let the call of number *at* go wrong."""
    faults = Faults(at, KINDS[kind])
    with pytest.MonkeyPatch.context() as patched:
        for places, writes in ((READS, False), (WRITES, True)):
            for place, name in places:
                patched.setattr(place, name, faults.wrap(getattr(place, name), writes))
        patched.setattr(io, "open", faults.opened(io.open))
        yield faults
