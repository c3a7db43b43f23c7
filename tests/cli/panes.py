"""Programs in a terminal of tmux: what is typed there, and what is on the screen."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.processes import clean_environment
from tests.servers import eventually

WITHIN_S = 60


class Pane:
    """A terminal of tmux, with a program in it."""

    def __init__(
        self,
        socket: Path,
        *command: str,
        env: Mapping[str, str] | None = None,
        width: int = 80,
        height: int = 24,
    ) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        self._env = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        size = ("-x", str(width), "-y", str(height))
        words = "trap : INT; " + shlex.join(command) + "; echo ended with $?; exec cat"
        self.run("new-session", "-d", *size, "sh", "-c", words)

    def run(self, *words: str) -> str:
        """Run a command of tmux."""
        return subprocess.run(
            [*self._tmux, *words],
            check=True,
            capture_output=True,
            text=True,
            env={**clean_environment(), **self._env},
        ).stdout

    def lines(self) -> list[str]:
        """What is on the screen."""
        return self.run("capture-pane", "-p").splitlines()

    def keys(self, *keys: str) -> None:
        """Type *keys*."""
        self.run("send-keys", *keys)

    def shows(self, pattern: str) -> None:
        """Wait for *pattern* on the screen."""

        def found() -> bool:
            text = "\n".join(self.lines())
            assert re.search(pattern, text, re.MULTILINE | re.DOTALL), text
            return True

        eventually(found, within_s=WITHIN_S)


@contextmanager
def pane_of(folder: Path, *command: str, env: Mapping[str, str] | None = None) -> Iterator[Pane]:
    """Run *command* in a terminal until the block ends."""
    for needed in ("tmux", command[0]):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed: scripts/install-shells")
    made = Pane(folder / "tmux", *command, env=env)
    try:
        yield made
    finally:
        made.run("kill-server")
