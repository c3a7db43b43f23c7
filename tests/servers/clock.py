"""A server whose clock can be set forward and back while it runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.servers.poll import eventually
from tests.servers.run import Server

_SOURCE = Path(__file__).with_name("clock.c")


class SteppedServer(Server):
    """A server whose clock is offset by a preloaded library.

    *preload* is more libraries to load, *environ* what these need.
    """

    def __init__(
        self,
        binary: Path,
        directory: Path,
        *args: str,
        preload: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._ahead_ms, self._offset_file = 0, directory / "ahead_ms"
        library = directory / "clock.so"
        compiler = shutil.which("cc") or "cc"
        options = ("-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl")
        subprocess.run([compiler, *options], check=True)
        self._offset_file.write_text("0")
        own = {
            "LD_PRELOAD": ":".join((str(library), *preload)),
            "TAMBO_TEST_CLOCK": str(self._offset_file),
        }
        super().__init__(binary, *args, environ={**(environ or {}), **own})

    def step(self, by_s: float) -> None:
        """Set the clock forward, or back if *by_s* is negative; return when it shows."""
        with redis.Redis.from_url(self.url) as db:
            before, _ = db.time()
            self._ahead_ms += round(by_s * 1000)
            # Written beside and moved: the server reads it at any moment.
            fresh = self._offset_file.with_suffix(".new")
            fresh.write_text(str(self._ahead_ms))
            fresh.replace(self._offset_file)
            eventually(lambda: abs(db.time()[0] - before - by_s) <= 2)


@contextmanager
def stepped(binary: Path) -> Iterator[SteppedServer]:
    """A server of *binary* whose clock is right until it is set."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs Linux and a C compiler")
    directory = Path(tempfile.mkdtemp(prefix="tambo-clock-"))
    try:
        with SteppedServer(binary, directory) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)
