"""The history of a run: what each process tried, and how it ended. One format for all protocols.

A process appends a line before an operation (`invoke`) and one after it (`ok`, `fail`, `unknown`).
An operation without a second line has an unknown outcome: its process was killed meanwhile. Times
are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

Action = Literal["send", "run", "stored", "dead", "fault"]
Outcome = Literal["invoke", "ok", "fail", "unknown"]

EVERYONE: Final = "*"
"""The target of a fault that all processes notice."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    at: float
    """Seconds of the monotonic clock."""
    actor: str
    """The process; each start has a name of its own."""
    action: Action
    """``stored`` and ``dead`` say what was found at the end; ``fault`` is injected."""
    outcome: Outcome
    message: str = ""
    """The text of the message, or the process that a fault hits."""
    operation: int = 0
    """The same for both lines of an operation, unique for its actor."""
    detail: str = ""
    """The key of a message, an error, or the kind of a fault."""

    def line(self) -> str:
        """Return the event as JSON, without the end of the line."""
        return _encode(self).decode()


# Much faster than json: a soak writes and reads thousands of lines a second.
_encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Event).decode


class Recorder:
    """Appends the events of one process to its file. What was written survives kill -9.

    Several processes may share an *actor*, if each counts its operations from another *first* on.
    """

    def __init__(self, folder: Path, actor: str, *, first: int = 1) -> None:
        self.actor, self._operations = actor, itertools.count(first)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(folder / f"{actor}.jsonl", flags, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def begin(self, action: Action, message: str, detail: str = "") -> int:
        """Record that an operation begins; return its number, for `end`."""
        operation = next(self._operations)  # atomic: handlers may run in threads
        self._write(action, "invoke", message, operation, detail)
        return operation

    def end(
        self, action: Action, outcome: Outcome, message: str, operation: int, detail: str = ""
    ) -> None:
        """Record how an operation ended."""
        self._write(action, outcome, message, operation, detail)

    def note(self, action: Action, message: str, detail: str = "") -> None:
        """Record a fact that takes no time."""
        self.end(action, "ok", message, self.begin(action, message, detail), detail)

    def note_fault(self, target: str, kind: str, since: float) -> None:
        """Record a fault that is noticed when it is over; it began at *since*."""
        operation = next(self._operations)
        self._write("fault", "invoke", target, operation, kind, at=since)
        self._write("fault", "ok", target, operation, kind)

    def _write(
        self,
        action: Action,
        outcome: Outcome,
        message: str,
        operation: int,
        detail: str,
        *,
        at: float | None = None,
    ) -> None:
        at = time.monotonic() if at is None else at
        event = Event(at, self.actor, action, outcome, message, operation, detail)
        # One system call: the kernel has all of the line or nothing.
        os.write(self._file, _encode(event) + b"\n")


def read(folder: Path) -> list[Event]:
    """Return what all processes recorded in *folder*, in order of time."""
    return merged(path.read_text("utf-8") for path in sorted(folder.glob("*.jsonl")))


def merged(texts: Iterable[str]) -> list[Event]:
    """Return the events of several files in order of time. An unfinished last line is left out."""
    return sorted((event for text in texts for event in _events(text)), key=lambda each: each.at)


def _events(text: str) -> Iterator[Event]:
    *whole, _ = text.split("\n")
    for line in whole:
        yield decode(line)
