"""``tambo`` as a process that goes on until it is stopped, and what it has printed so far."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.serve.processes import clean_environment
from tests.servers import eventually

WITHIN_S = 60.0
COMMAND = (sys.executable, "-c", "from tambomq.cli.main import main; main()")


class Running:
    """A command that has been started."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process, self._folder = process, folder

    @property
    def out(self) -> str:
        """What is on stdout."""
        return (self._folder / "out").read_text()

    @property
    def err(self) -> str:
        """What is on stderr."""
        return (self._folder / "err").read_text()

    def says(self, pattern: str, stream: str = "out") -> None:
        """Wait until *stream* holds *pattern*."""

        def holds() -> bool:
            assert re.search(pattern, getattr(self, stream)), (self.out, self.err)
            return True

        eventually(holds, within_s=WITHIN_S)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(WITHIN_S)

    def write(self, data: bytes) -> None:
        """Give it *data* to read; its standard input stays open."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()


Start = Callable[..., Running]


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """A function that starts ``tambo`` with its arguments; what still runs at the end is killed."""
    with ExitStack() as stack:
        numbers = iter(range(100))

        def start(*args: str) -> Running:
            place = folder / f"run-{next(numbers)}"
            place.mkdir()
            with (place / "out").open("wb") as out, (place / "err").open("wb") as err:
                process = subprocess.Popen(
                    [*COMMAND, *args],
                    env=clean_environment(),
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=err,
                )
            stack.callback(_end, process)
            return Running(process, place)

        yield start


def on_a_terminal(*args: str, stdin: Path) -> tuple[int, str]:
    """Run ``tambo`` with a terminal for its output; return its exit code and what was drawn."""
    ours, theirs = pty.openpty()
    with stdin.open("rb") as given:
        process = subprocess.Popen(
            [*COMMAND, *args],
            env={**clean_environment(), "TERM": "xterm", "COLUMNS": "200"},
            stdin=given,
            stdout=theirs,
            stderr=theirs,
        )
    os.close(theirs)
    drawn = b""
    try:
        # Linux has an error where a terminal ends, macOS an empty read.
        with suppress(OSError):
            while data := os.read(ours, 65_536):
                drawn += data
        return process.wait(WITHIN_S), drawn.decode()
    finally:
        os.close(ours)
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
