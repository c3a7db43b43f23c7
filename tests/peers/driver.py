"""A foreign client in a process of its own, controlled by JSON lines."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

PEERS = Path(__file__).parent

_END_WITHIN_S = 60.0


class PeerError(Exception):
    """What a client refused; `code` is the specification's name for it."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Driver:
    """A driver that runs until it is closed, or we are gone: then its stdin ends."""

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, op: str, **fields: object) -> Any:
        """The answer to *op*; raises `PeerError`. A field that is ``None`` is not sent."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        given = {name: value for name, value in fields.items() if value is not None}
        process.stdin.write(json.dumps({"op": op, **given}) + "\n")
        process.stdin.flush()
        if not (line := process.stdout.readline()):
            raise RuntimeError(f"{process.args!r} ended at {op!r} with {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"], answer["text"])
        return answer["ok"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def in_node(folder: str) -> list[str | Path]:
    """The command that runs a Node driver; skips the test where it is not installed."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on PATH")
    _installed(PEERS / folder / "node_modules" / ".stamp")
    return [node, PEERS / folder / "driver.js"]


def from_npm(folder: str, name: str) -> list[str | Path]:
    """A command that an npm package brings; skips the test where it is not installed."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no node on PATH")
    _installed(PEERS / folder / "node_modules" / ".stamp")
    return [node, PEERS / folder / "node_modules" / ".bin" / name]


def in_python(folder: str, *command: str) -> list[str | Path]:
    """The command that runs something of a foreign Python environment; skips without one."""
    _installed(PEERS / folder / ".venv" / ".stamp")
    return [PEERS / folder / ".venv" / "bin" / "python", *command]


def _installed(stamp: Path) -> None:
    if not stamp.exists():
        pytest.skip(f"{stamp.parts[-3]} is not installed: scripts/peers does that")
