"""A disk that is full, broken or slow, for files below one directory and for chosen processes.

Start a process with `DiskFault.environ`, then switch the fault on and off while it runs. Other
processes, and other directories, notice nothing.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.chaos.shims.preload import library

_SIZE: Final = 4096
_DIRECTORY_AT: Final = 16
_MODE_AT: Final = 0


class DiskFault:
    """The disk below *below*, for the processes that have `environ`; well at first.

    *control* is the file through which the processes are told; it is made here.
    """

    def __init__(self, control: Path, below: Path | None = None) -> None:
        self._control = control
        self._library = library("disk")
        control.write_bytes(b"w".ljust(_SIZE, b"\0"))
        with control.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _SIZE)
        if below is not None:
            self.move_to(below)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.well()
        self._shared.close()

    @property
    def environ(self) -> Mapping[str, str]:
        """What the environment of a process needs, so that the fault can reach it."""
        return {"LD_PRELOAD": str(self._library), "TAMBO_TEST_DISK": str(self._control)}

    def move_to(self, below: Path) -> None:
        """Let the fault hit files below another directory; all is well until it is set again."""
        name = os.fsencode(below.resolve())
        if len(name) >= _SIZE - _DIRECTORY_AT:
            raise ValueError(f"{below} is longer than {_SIZE - _DIRECTORY_AT - 1} bytes")
        self.well()
        self._shared[_DIRECTORY_AT:] = name.ljust(_SIZE - _DIRECTORY_AT, b"\0")

    def full(self) -> None:
        """Let writes and syncs fail: no space left (ENOSPC)."""
        self._set(b"f")

    def broken(self) -> None:
        """Let writes and syncs fail: input/output error (EIO)."""
        self._set(b"b")

    def unsynced(self) -> None:
        """Let only syncs fail: input/output error (EIO)."""
        self._set(b"u")

    def filling(self) -> None:
        """Let every other write write half of its bytes, and the next fail (ENOSPC)."""
        self._set(b"l")

    def slow(self, ms: int) -> None:
        """Let each write and sync take so many milliseconds longer."""
        self.well()  # Never a new mode with the old number.
        self._shared[_MODE_AT + 1 : _DIRECTORY_AT] = b"%08d" % ms + b"\0" * 7
        self._set(b"s")

    def well(self) -> None:
        """Let all succeed again."""
        self._set(b"w")

    def _set(self, mode: bytes) -> None:
        self._shared[_MODE_AT : _MODE_AT + 1] = mode
