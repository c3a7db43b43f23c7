"""``tambo pipeline`` on a terminal: what is shown, and the effect of keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.serve.processes import clean_environment
from tests.servers import eventually

CTRL_C = b"\x03"
WITHIN_S = 240
_MAIN = "from tambomq.cli.main import main; main()"
# Only a terminal that is its own makes a signal of Ctrl-C.
_OWN = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {_MAIN}"
_STEP = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[\?25[hl]|(\r)|(\n)|([^\x1b\r\n]+)")


class Terminal:
    """A command that runs, and all that it has written to its terminal."""

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self._process, self._fd, self._poll = process, fd, select.poll()
        self._poll.register(fd, select.POLLIN)
        self._drawn = b""

    @property
    def drawn(self) -> str:
        """What was written so far, with what steers the terminal."""
        # Linux has an error where a terminal ends, macOS an empty read.
        with suppress(OSError):
            while self._poll.poll(0) and (data := os.read(self._fd, 65_536)):
                self._drawn += data
        return self._drawn.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """What is to be seen now, from the first line on."""
        return screen(self.drawn)

    def until(self, pattern: str) -> None:
        """Wait until something that fits is to be seen."""

        def seen() -> bool:
            assert re.search(pattern, "\n".join(self.lines)), self.lines[-5:]
            return True

        eventually(seen, within_s=WITHIN_S)

    def press(self, key: bytes) -> None:
        """Press a key."""
        os.write(self._fd, key)

    def end(self) -> int:
        """Wait until it has ended; return its exit code."""

        def code() -> list[int]:
            # Nobody else empties the terminal, without which it could not go on.
            assert self.drawn is not None
            return [] if (ended := self._process.poll()) is None else [ended]

        return eventually(code, within_s=WITHIN_S)[0]


@contextmanager
def sitting(url: str, *words: str, columns: int = 80, **env: str) -> Iterator[Terminal]:
    """Start ``tambo pipeline`` on a terminal; it and all it has started are gone at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN, "pipeline", *words],
        env={**clean_environment(), "TERM": "xterm", "TAMBO_REDIS_URL": url, **env},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours)


def screen(drawn: str) -> list[str]:
    """Return the lines that a terminal shows of *drawn*; colours are left out."""
    lines, row, column = [""], 0, 0
    for count, verb, begin, down, text in _STEP.findall(drawn):
        if verb == "A":
            row = max(0, row - int(count or 1))
        elif verb == "K":
            lines[row] = ""
        elif begin:
            column = 0
        elif down:
            row += 1
            lines += [""] if row == len(lines) else []
        elif text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
    return [line.rstrip() for line in lines]
