"""A player's process: started once, asked for each turn, ended with the harness."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from benchmarks.model import ROOT, Player

_END_WITHIN_S = 5.0
_TURN_WITHIN_S = 400.0


class PlayerFailed(Exception):
    """A player said so, fell silent or ended."""


class Process:
    """A running player. Its stdin ends with us, and then it ends too."""

    def __init__(self, player: Player) -> None:
        """Start it and ask what it is."""
        self._name = player.name
        self._process = subprocess.Popen(
            list(map(str, player.command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", **player.env},
        )
        try:
            self.version = str(self.ask({"task": "about"})["version"])
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to *order*; raise `PlayerFailed`."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise PlayerFailed(f"{self._name} has ended") from error
        with selectors.DefaultSelector() as ready:
            ready.register(stdout, selectors.EVENT_READ)
            if not ready.select(_TURN_WITHIN_S):
                raise PlayerFailed(f"{self._name} took more than {_TURN_WITHIN_S:.0f} s")
        if not (line := stdout.readline()):
            raise PlayerFailed(f"{self._name} has ended")
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise PlayerFailed(f"{self._name}: {answer['error']}")
        return answer

    def end(self) -> None:
        """Close its stdin and wait; kill it if it does not follow."""
        try:
            self._process.communicate(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.end()
