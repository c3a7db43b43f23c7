"""Sends, receives and deletions that tasks make at the same time, as one script call each.

A task sees what it would see if its call had been made alone. Calls for a queue with a journal are
made alone: how much fits into the journal is decided for each send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, TypeAlias

from tambomq.errors import MessageTooLong, QueueFull, TamboError
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.rsmq.ops.messages import ReceiveResult
from tambomq.store.aio import AsyncStore
from tambomq.store.batcher import Batcher, Waiter, fail, give, give_all
from tambomq.store.call import Call

_Group: TypeAlias = tuple[str, str, float | None]
"""The operation, the queue, and its delay or visibility timeout: what one script call can do."""

# A script of this size takes less than 1 ms; larger bodies are sent one by one.
_MAX_SENT_BYTES: Final = 1 << 16


class MessageBatcher:
    """Runs calls of one client on single messages, in batches where tasks make them together."""

    def __init__(self, store: AsyncStore, keys: Keys, journal: JournalPolicy | None) -> None:
        """Run calls by *store*; *journal* is the policy by which they were made."""
        self._store, self._keys, self._journal = store, keys, journal
        self._batcher = Batcher(store)

    # Functions that return an awaitable, not coroutines: a layer less for every message.

    def send(self, queue: str, call: Call[str], *, delay: float | None) -> Awaitable[str]:
        """Run a call of `message_ops.send` with this *delay*."""
        if self._has_journal(queue):
            return self._store.run(call)
        return self._batcher.run(call, ("send", queue, delay), self._send)

    def receive(
        self, queue: str, call: Call[ReceiveResult], *, vt: float | None
    ) -> Awaitable[ReceiveResult]:
        """Run a call of `message_ops.receive_one` with this *vt*."""
        if self._has_journal(queue):
            return self._store.run(call)
        return self._batcher.run(call, ("receive", queue, vt), self._receive)

    def delete(self, queue: str, call: Call[bool]) -> Awaitable[bool]:
        """Run a call of `settle_ops.delete`."""
        if self._has_journal(queue):
            return self._store.run(call)
        return self._batcher.run(call, ("delete", queue, None), self._delete)

    def _has_journal(self, queue: str) -> bool:
        return self._journal is not None and self._journal.of(queue) is not None

    async def _send(self, group: _Group, waiters: Sequence[Waiter]) -> None:
        queue, parts = group[1], list(_by_size(waiters))
        calls = [message_ops.send_together(queue, [call for call, _ in part]) for part in parts]
        for part, outcome in zip(parts, await self._store.outcomes(calls), strict=True):
            if isinstance(outcome, MessageTooLong | QueueFull):
                # None of them is stored. Sent one by one, only those fail that do not fit.
                give_all(part, await self._store.outcomes([call for call, _ in part]))
            elif isinstance(outcome, TamboError):
                fail(part, outcome)
            else:
                give_all(part, outcome)

    async def _receive(self, group: _Group, waiters: Sequence[Waiter]) -> None:
        _, queue, vt = group
        # A script that meets damaged entries may return fewer messages than there are, and a short
        # visibility timeout may have ended: only an empty result says that nothing is visible.
        while waiters:
            call = message_ops.receive(self._keys, queue, len(waiters), vt=vt)
            result = await self._store.run(call)
            # The message of a task that was cancelled meanwhile is for the next one.
            waiting = [waiter for waiter in waiters if not waiter[1].done()]
            for message, waiter in zip(result.messages, waiting, strict=False):
                give(waiter, ReceiveResult([message]))
            if not result.messages:
                give_all(waiting, [result] * len(waiting))
                return
            if spare := result.messages[len(waiting) :]:
                await self._store.follow(settle_ops.hide_batch(self._keys, queue, spare, 0))
            waiters = waiting[len(result.messages) :]

    async def _delete(self, group: _Group, waiters: Sequence[Waiter]) -> None:
        call = settle_ops.delete_together(group[1], [call for call, _ in waiters])
        flags = await self._store.run(call)
        give_all(waiters, flags)


def _by_size(waiters: Sequence[Waiter]) -> Iterator[list[Waiter]]:
    """Split sends into parts with few enough bytes for one script, in their order."""
    part, size = list[Waiter](), 0
    for waiter in waiters:
        added = len(waiter[0].args[-1])  # type: ignore[arg-type]
        if part and size + added > _MAX_SENT_BYTES:
            yield part
            part, size = [], 0
        part.append(waiter)
        size += added
    yield part
