"""The ledger of a soak: what is confirmed and not yet completed, kept small however long it lasts.

Events may come in any order. What was completed long ago is forgotten: a double that comes later
than that is not seen.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import which
from typing import Final

from tests.chaos.history import Event, decode

KEPT_S: Final = 600.0
"""How long completed messages are remembered."""
_STARVED: Final = frozenset({"starved", "slow machine"})
_PIECE: Final = 1 << 22
_BLOCK: Final = 1 << 16


class Ledger:
    """The messages of one subject."""

    def __init__(self, *, once: bool = False, costly_s: float = 0.0) -> None:
        """*once*: each consumer may have each message, but none of them twice.

        *costly_s*: a process that was not run for this time may have lost its lease.
        """
        self._once, self._costly_s = once, costly_s
        self._began: dict[tuple[str, int], float] = {}
        self.open: dict[str, float] = {}
        """Messages that are confirmed and not completed, and since when."""
        self.done: dict[str, float] = {}
        """By message, or by message and consumer."""
        self.confirmed = self.completed = self.doubles = 0
        self.starved = 0
        """How often the machine did not run a process, or Redis, for so long."""
        self._known: dict[str, float] = {}
        self._missing: set[str] = set()

    def feed(self, events: Iterable[Event]) -> None:
        """Take note of events."""
        for event in events:
            if event.outcome == "ok":
                if event.action == "send":
                    self.confirmed += 1
                    if event.message not in self._known:
                        self.open[event.message] = event.at
                elif event.action == "run":
                    self.complete(event.message, event.at, event.actor)
            if event.detail in _STARVED:
                self._note_starved(event)

    def _note_starved(self, event: Event) -> None:
        operation = event.actor, event.operation
        if event.outcome == "invoke":
            self._began[operation] = event.at
        elif event.at - self._began.pop(operation, event.at) >= self._costly_s:
            self.starved += 1

    def complete(self, message: str, at: float, actor: str = "") -> None:
        """Take note that *actor* has completed a message."""
        self.open.pop(message, None)
        if message not in self._known:
            self.completed += 1
        self._known[message] = at
        key = f"{message} {actor.partition('.')[0]}" if self._once else message
        if key in self.done:
            self.doubles += 1
        self.done[key] = at

    def overdue(self, now: float, for_s: float) -> set[str]:
        """Return the messages that have been open for longer than *for_s*."""
        return {message for message, at in self.open.items() if now - at > for_s}

    def lost(self, overdue: set[str], stored: set[str]) -> set[str]:
        """Return which *overdue* messages were in no place, twice in a row."""
        missing = {message for message in overdue - stored if message in self.open}
        twice = missing & self._missing
        self._missing = missing
        return twice

    def forget(self, now: float) -> None:
        """Forget what was completed long ago."""
        for known in (self.done, self._known):
            for key in [key for key, at in known.items() if now - at > KEPT_S]:
                del known[key]


class Tail:
    """Reads what is new in the history files of a folder, each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._freed: dict[Path, int] = {}

    def events(self) -> Iterator[Event]:
        """Yield the new events of all files."""
        for path in sorted(self._folder.glob("*.jsonl")):
            yield from self._new(path)

    def _new(self, path: Path) -> Iterator[Event]:
        with path.open("rb") as file:
            while True:
                start = self._read.get(path, 0)
                file.seek(start)
                whole, newline, _ = file.read(_PIECE).rpartition(b"\n")
                if not newline:
                    return
                self._read[path] = start + len(whole) + 1
                for line in whole.split(b"\n"):
                    yield decode(line)

    def free(self) -> None:
        """Give the disk back what has been read, where that is possible."""
        if which("fallocate") is None:
            return
        for path, end in self._read.items():
            size, freed = end // _BLOCK * _BLOCK, self._freed.get(path, 0)
            # Only what is new: hours leave hundreds of files of processes that have ended.
            if size > freed:
                piece = f"--offset={freed}", f"--length={size - freed}"
                command = ("fallocate", "--punch-hole", *piece, path)
                subprocess.run(command, check=False, capture_output=True)
                self._freed[path] = size
