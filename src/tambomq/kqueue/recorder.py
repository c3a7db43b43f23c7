"""Records published messages in journals, in one round trip per batch of pending messages.

Messages are delivered first, and delivery never waits for the journal. So each message is recorded
at most once. With a level of durability, the next batch is written once the one before is durable,
or that is not confirmed in time. Messages that are not recorded, because the journal is full or
Redis is unreachable or too slow, are counted; a killed server loses its pending entries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from typing import Final

from tambomq.errors import NotDurable, TamboError
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalPolicy
from tambomq.kqueue.delivery import Runs
from tambomq.kqueue.frames import messages_in
from tambomq.kqueue.model import Counters
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call, Outcome
from tambomq.store.durability.aio import AsyncDurableStore, async_stores
from tambomq.store.durability.level import MEMORY, TIMEOUT_S

MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
"""Limit of the bodies that are pending."""
MAX_JOURNALS: Final = 10_000
"""Limit of the queues with a journal: producers choose names freely."""
MAX_NAME_BYTES: Final = 1024
"""Limit of the length of a journalled queue's name."""
# A script blocks Redis: 500 entries, or a megabyte, take a few milliseconds.
_CHUNK, _CHUNK_BYTES = 500, 1 << 20
_WARN_EVERY_S: Final = 30.0
WAIT_S: Final = TIMEOUT_S
"""How long a batch waits until it is durable."""

_log = logging.getLogger(__name__)

Entries = list[tuple[int, bytes]]
"""For each message, the number of its targets and its body."""


class Recorder:
    """Records messages of the queues that match *journal*, in the Redis at *url*.

    *durable* is the level of durability that each batch waits for.
    """

    def __init__(
        self, url: str, journal: JournalPolicy, counters: Counters, durable: str = MEMORY
    ) -> None:
        self._store, self._journal_policy, self._counters = AsyncStore(url), journal, counters
        self._sender = async_stores(self._store, durable, WAIT_S).default
        self._journals: dict[bytes, JournalKeys] = {}
        self._pending: defaultdict[bytes, Entries] = defaultdict(list)
        self._missed: defaultdict[bytes, int] = defaultdict(int)
        self._bytes = 0
        """Size of the bodies that are pending or in flight."""
        self._task: asyncio.Task[None] | None = None
        self._warned_at = -_WARN_EVERY_S

    async def start(self) -> None:
        """Check that Redis is reachable, and can confirm the level. Raises `StoreError`."""
        await self._store.run(Call("PING", (), (), bool, repeatable=True))
        if isinstance(self._sender, AsyncDurableStore):
            await self._sender.check()

    def record(self, data: bytes, runs: Runs) -> None:
        """Queue the messages of *runs* of *data* for writing."""
        for start, end, targets, _ in runs:
            target_count = len(targets)
            for name, body in messages_in(data, start, end):
                if self._has_journal(name):
                    self._enqueue(name, target_count, body)
        if self._pending and self._task is None:
            self._task = asyncio.ensure_future(self._write())

    async def close(self, within_s: float) -> None:
        """Write pending entries for up to *within_s*, then close."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within_s)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._counters.unrecorded += sum(map(len, self._pending.values()))
            self._pending.clear()
        for store in {self._store, self._sender}:
            await store.close()

    def _has_journal(self, name: bytes) -> bool:
        if name in self._journals:
            return True
        # A queue's name may be any bytes, a journal's is text.
        keys = self._journal_policy.of(name.decode("utf-8", "backslashreplace")) if name else None
        if keys is None:
            return False
        if len(self._journals) >= MAX_JOURNALS or len(name) > MAX_NAME_BYTES:
            self._counters.unrecorded += 1
            self._warn(f"more than {MAX_JOURNALS} queues, or a name above {MAX_NAME_BYTES} bytes")
            return False
        self._journals[name] = keys
        return True

    def _enqueue(self, name: bytes, target_count: int, body: bytes) -> None:
        if self._bytes + len(body) > MAX_PENDING_BYTES:
            self._count_missed(name, 1)
            self._warn("Redis does not keep up, the buffer of pending messages is full")
            return
        self._bytes += len(body)
        self._pending[name].append((target_count, body))

    async def _write(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending, defaultdict(list)
                size = self._bytes
                await self._write_batch(batch)
                self._bytes -= size
        finally:
            self._task = None

    async def _write_batch(self, batch: dict[bytes, Entries]) -> None:
        parts = [(name, part) for name, entries in batch.items() for part in _parts(entries)]
        calls, missed = [], []
        for name, part in parts:
            missed.append(self._missed.pop(name, 0))
            keys, bounds = self._journals[name], self._journal_policy.bounds
            calls.append(ops.append_bounded(keys, bounds, part, missed[-1]))
        try:
            outcomes = await self._outcomes(calls)
        except asyncio.CancelledError:
            self._counters.unrecorded += sum(len(part) for _, part in parts)
            raise
        for (name, part), before, outcome in zip(parts, missed, outcomes, strict=True):
            if isinstance(outcome, TamboError):
                self._missed[name] += before
                self._count_missed(name, len(part))
                self._warn(outcome)
            else:
                self._counters.recorded += outcome
                self._counters.unrecorded += len(part) - outcome
                if outcome < len(part):
                    self._warn(f"the journal of {self._journals[name].queue!r} is full")

    async def _outcomes(self, calls: list[Call[int]]) -> list[Outcome]:
        """Write, and wait until it is durable; warn if that is not confirmed."""
        try:
            outcomes = await self._sender.outcomes(calls)
        except TamboError as error:
            return [error] * len(calls)
        if unconfirmed := [each for each in outcomes if isinstance(each, NotDurable)]:
            self._warn(unconfirmed[0].why, "recorded messages are not confirmed as durable")
        return [each.result if isinstance(each, NotDurable) else each for each in outcomes]

    def _count_missed(self, name: bytes, count: int) -> None:
        """Count messages not recorded, here and with the next write in the journal's state."""
        self._counters.unrecorded += count
        self._missed[name] += count

    def _warn(self, reason: TamboError | str, what: str = "messages are not recorded") -> None:
        """Log *what* and why, at most every 30 s."""
        now = time.monotonic()
        if now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            _log.warning("%s: %s", what, reason)


def _parts(entries: Entries) -> list[Entries]:
    """Split *entries* into parts that one script may write."""
    parts: list[Entries] = [[]]
    size = 0
    for each in entries:
        if len(parts[-1]) == _CHUNK or (size and size + len(each[1]) > _CHUNK_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each[1])
    return parts
