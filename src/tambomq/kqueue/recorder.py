"""Writes down what passed through a server: all of a turn of the loop in one round trip.

The messages have been handed on by then, and nobody waits for the journal. So each is recorded at
most once, soon after it went out; what a full journal, a Redis that is away or too slow does not
take is counted, and a server that is killed takes with it what it has not written yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import Final

from tambomq.errors import TamboError
from tambomq.journal import ops
from tambomq.journal.keys import Keys
from tambomq.journal.recording import Recording
from tambomq.kqueue.flow import Runs
from tambomq.kqueue.frames import messages_in
from tambomq.kqueue.model import Counters
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

MOST_BYTES: Final = 64 * 1024 * 1024
"""So much may wait for Redis."""
MOST_JOURNALS: Final = 10_000
"""So many queues have a journal: producers may think of any number of names."""
MOST_NAME_BYTES: Final = 1024
"""No journal has a longer name."""
# A script keeps Redis from others: 500 entries, or a megabyte, take it a few milliseconds.
_CHUNK, _CHUNK_BYTES = 500, 1 << 20
_TELL_EVERY_S: Final = 30.0

_log = logging.getLogger(__name__)

Sent = list[tuple[int, bytes]]
"""To how many each message went, and its body."""


class Recorder:
    """Records the messages of those queues that *recording* names, in the Redis at *url*."""

    def __init__(self, url: str, recording: Recording, counters: Counters) -> None:
        self._store, self._recording, self._counters = AsyncStore(url), recording, counters
        self._journals: dict[bytes, Keys] = {}
        self._waiting: defaultdict[bytes, Sent] = defaultdict(list)
        self._missed: defaultdict[bytes, int] = defaultdict(int)
        self._bytes = 0
        """What waits or is on its way."""
        self._task: asyncio.Task[None] | None = None
        self._told_at = -_TELL_EVERY_S

    async def start(self) -> None:
        """See whether Redis is there. Raises `StoreError`."""
        await self._store.run(Call("PING", (), (), bool, repeatable=True))

    def note(self, data: bytes, runs: Runs) -> None:
        """Remember the messages of *runs*, cut from *data*, and see to it that they are written."""
        for start, end, targets, _ in runs:
            reach = len(targets)
            for name, body in messages_in(data, start, end):
                if self._has_journal(name):
                    self._keep(name, reach, body)
        if self._waiting and self._task is None:
            self._task = asyncio.ensure_future(self._write())

    async def close(self, within_s: float) -> None:
        """Write what waits, for up to *within_s*, and hang up."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._counters.unrecorded += sum(map(len, self._waiting.values()))
            self._waiting.clear()
        await self._store.close()

    def _has_journal(self, name: bytes) -> bool:
        if name in self._journals:
            return True
        # A name may be any bytes, a journal's is text.
        keys = self._recording.of(name.decode("utf-8", "backslashreplace")) if name else None
        if keys is None:
            return False
        if len(self._journals) >= MOST_JOURNALS or len(name) > MOST_NAME_BYTES:
            self._counters.unrecorded += 1
            self._tell(f"more than {MOST_JOURNALS} queues, or a name above {MOST_NAME_BYTES} bytes")
            return False
        self._journals[name] = keys
        return True

    def _keep(self, name: bytes, reach: int, body: bytes) -> None:
        if self._bytes + len(body) > MOST_BYTES:
            self._miss(name, 1)
            self._tell("Redis does not keep up")
            return
        self._bytes += len(body)
        self._waiting[name].append((reach, body))

    async def _write(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, defaultdict(list)
                size = self._bytes
                await self._trip(waiting)
                self._bytes -= size
        finally:
            self._task = None

    async def _trip(self, waiting: dict[bytes, Sent]) -> None:
        parts = [(name, part) for name, sent in waiting.items() for part in _parts(sent)]
        calls, missed = [], []
        for name, part in parts:
            missed.append(self._missed.pop(name, 0))
            keys, bounds = self._journals[name], self._recording.bounds
            calls.append(ops.append_bounded(keys, bounds, part, missed[-1]))
        try:
            outcomes = await self._store.outcomes(calls)
        except asyncio.CancelledError:
            self._counters.unrecorded += sum(len(part) for _, part in parts)
            raise
        for (name, part), before, outcome in zip(parts, missed, outcomes, strict=True):
            if isinstance(outcome, TamboError):
                self._missed[name] += before
                self._miss(name, len(part))
                self._tell(outcome)
            else:
                self._counters.recorded += outcome
                self._counters.unrecorded += len(part) - outcome
                if outcome < len(part):
                    self._tell(f"the journal of {self._journals[name].queue!r} is full")

    def _miss(self, name: bytes, count: int) -> None:
        """Count what was not recorded, here and, with what comes next, in the journal's state."""
        self._counters.unrecorded += count
        self._missed[name] += count

    def _tell(self, why: TamboError | str) -> None:
        """Log *why* messages are not recorded, once in a while."""
        now = time.monotonic()
        if now - self._told_at >= _TELL_EVERY_S:
            self._told_at = now
            _log.warning("messages are not recorded: %s", why)


def _parts(sent: Sent) -> list[Sent]:
    """Return *sent* in parts that one script may write."""
    parts: list[Sent] = [[]]
    size = 0
    for each in sent:
        if len(parts[-1]) == _CHUNK or (size and size + len(each[1]) > _CHUNK_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each[1])
    return parts
