"""The line that ``tambo work`` prints for each run, and the thread that prints them.

A slow reader, such as a terminal that was stopped, must not hold up the jobs: only the thread waits
for it, and what it cannot keep is counted instead.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from tambomq.log import mask_url
from tambomq.runtime.observer import RunRecord
from tambomq.text import spelled_out

MAX_KEPT: Final = 10_000
"""Lines that wait to be printed."""
MAX_ERROR: Final = 200
"""Characters of an error on a line; the log has all of it."""

# Other processes write to the same pipe: what is written at once, up to this size, stays together.
_PIPE_BUF: Final = 4096
# Lines that come up in this time are written together.
_COALESCE_S: Final = 0.02
_ENDED: Final = {
    "completed": ("completed in", ""),
    "retried": ("failed after", ", retry follows"),
    "dead": ("failed after", ", dead-lettered"),
    "cancelled": ("cancelled after", ""),
    "returned": ("given back after", ""),
    "lost": ("lost after", ""),
}
_MS_BELOW: Final = 10_000


def line(record: RunRecord, at: float) -> str:
    """Return *record* as a line for people: ``12:00:01 mail welcome w-7 completed in 12 ms, …``."""
    names = " ".join(filter(None, (record.queue, record.name, record.id)))
    stamp = time.strftime("%H:%M:%S", time.localtime(at))
    ended, follows = _ENDED[record.outcome]
    attempt = f", attempt {record.attempt}" if record.attempt > 1 else ""
    error = f": {_short(record.error)}" if record.error else ""
    took, waited = duration(record.took_us / 1e3), duration(record.waited_ms)
    return f"{stamp} {spelled_out(names)} {ended} {took}, waited {waited}{attempt}{follows}{error}"


def json_line(record: RunRecord, at: float, process: int) -> str:
    """Return *record* as a JSON object, for programs."""
    entry = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "event": "run",
        "process": process,
        "queue": record.queue,
        "job": record.name,
        "id": record.id,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "waited_ms": record.waited_ms,
        "took_ms": round(record.took_us / 1e3, 3),
        "error": mask_url(record.error),
    }
    return msgspec.json.encode(entry).decode()


def duration(ms: float) -> str:
    """Return a time in the unit that people read best."""
    if 0 < ms < 1:
        return f"{ms:.1f} ms"
    return f"{ms:.0f} ms" if ms < _MS_BELOW else f"{ms / 1000:.1f} s"


def _short(error: str) -> str:
    text = spelled_out(mask_url(error))
    return text if len(text) <= MAX_ERROR else f"{text[: MAX_ERROR - 1]}…"


class RunPrinter:
    """Prints a line for each run, from a thread of its own, once `start` was called."""

    def __init__(self, process: int, *, as_json: bool) -> None:
        self._process, self._as_json = process, as_json
        self._kept: deque[tuple[RunRecord, float]] = deque()
        self._dropped = 0
        self._wakeup = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="run-lines", daemon=True)

    def show(self, record: RunRecord) -> None:
        """Keep *record* to be printed."""
        if len(self._kept) >= MAX_KEPT:
            self._dropped += 1
            return
        self._kept.append((record, time.time()))
        if not self._wakeup.is_set():
            self._wakeup.set()

    def start(self) -> None:
        """Start to print."""
        self._thread.start()

    def close(self, within_s: float = 1.0) -> None:
        """Print what is left, unless nobody reads it in time."""
        self._ended.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def _run(self) -> None:
        # Without a reader there is nothing to print for; the work goes on.
        with suppress(OSError):
            while not self._ended.is_set():
                self._wakeup.wait()
                self._ended.wait(_COALESCE_S)
                self._wakeup.clear()
                self._print()

    def _print(self) -> None:
        block = b""
        while self._kept:
            text = self._text(*self._kept.popleft())
            data = text.encode("utf-8", "backslashreplace") + b"\n"
            if block and len(block) + len(data) > _PIPE_BUF:
                _write(block)
                block = b""
            block += data
        if self._dropped:
            count, self._dropped = self._dropped, 0
            block += self._left_out(count).encode()
        if block:
            _write(block)

    def _left_out(self, count: int) -> str:
        if self._as_json:
            return f'{{"event":"lines_left_out","process":{self._process},"count":{count}}}\n'
        return f"({count} lines left out: nobody reads them fast enough)\n"

    def _text(self, record: RunRecord, at: float) -> str:
        if self._as_json:
            return json_line(record, at, self._process)
        return line(record, at)


def _write(data: bytes) -> None:
    stdout = sys.stdout.fileno()
    while data:
        data = data[os.write(stdout, data) :]
