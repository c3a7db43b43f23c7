"""Tells the server what became of messages: done, to be retried, dead, or given back.

Deletions that come up while one is on its way leave together in the next. A
server that cannot be reached, or takes no writes, is told when it does; until
then the messages stay held, so that nobody runs them again. If it was away for
longer than their lease, and delivers them to this worker once more, they are
settled by their new receipts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from tambomq.clock import pauses
from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.rsmq import settle_ops
from tambomq.rsmq.heartbeat import receipts
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Plan, only
from tambomq.store.heartbeat import Heartbeat, NoHeartbeat

log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkerStats(msgspec.Struct):
    """What a worker has done so far."""

    received: int = 0
    done: int = 0
    """Handled and deleted."""
    failed: int = 0
    """Handlers that raised."""
    retried: int = 0
    """Put back to wait for another try."""
    buried: int = 0
    """Moved to the dead-letter queue."""
    lost: int = 0
    """Handled, but received by another or deleted in the meantime, or so it seems: after a broken
    connection a deletion may have to be repeated, and finds its own work."""


class Settler:
    """Settles the messages of one queue."""

    def __init__(
        self, store: AsyncStore, keys: Keys, queue: str, beat: Heartbeat, stats: WorkerStats
    ) -> None:
        """Count into *stats*."""
        self._store, self._keys, self._queue, self._beat = store, keys, queue, beat
        self._done: list[Message] = []
        self._deleting: asyncio.Task[None] | None = None
        self._stats = stats
        self._renews = not isinstance(beat, NoHeartbeat)
        self._in_flight: dict[str, Message] = {}
        """The last delivery of each message that is held, by id."""

    def take(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Hold *messages*; return those to be run.

        One that is held already had its lease end while no renewal came through. Its handler goes
        on, or has ended: it is not run once more, and is settled by its new receipt.
        """
        self._beat.hold(receipts(messages))
        if not self._renews:
            # What nobody renews is not ours any more when it is delivered again.
            return messages
        held = self._in_flight
        fresh = [message for message in messages if message.id not in held]
        for message in messages:
            held[message.id] = message
        return fresh

    def let_go(self, messages: Iterable[Message]) -> None:
        """Hold *messages* no more."""
        ids = [message.id for message in messages]
        self._beat.let_go(ids)
        for id in ids:
            self._in_flight.pop(id, None)

    def done(self, message: Message) -> None:
        """Delete *message*, soon."""
        self._done.append(message)
        if self._deleting is None:
            self._deleting = asyncio.create_task(self._delete())

    async def retry(self, message: Message, wait_s: float) -> None:
        """Let *message* be received again in *wait_s* seconds."""
        message = self._last(message)
        self.let_go((message,))
        hide = settle_ops.hide(self._keys, self._queue, message.id, wait_s, receipt=message.receipt)
        if await self._told(lambda: only(hide)):
            self._stats.retried += 1

    async def bury(self, message: Message, dead: str, why: str, *, realtime: bool) -> None:
        """Move *message* to queue *dead*; *why* may have a traceback."""
        buried, tried = None, None
        while not buried and tried is not (message := self._last(message)):
            tried = message
            bury = settle_ops.bury(self._keys, self._queue, message, dead, why, realtime=realtime)
            buried = await self._told(partial(only, bury))
        self._stats.buried += bool(buried)
        self.let_go((message,))

    async def drain(self) -> None:
        """Return when everything has been told."""
        if self._deleting is not None:
            await self._deleting

    async def _delete(self) -> None:
        try:
            while self._done:
                batch, self._done = [self._last(message) for message in self._done], []
                delete = partial(settle_ops.delete_batch, self._keys, self._queue, batch)
                flags = await self._told(delete) or [False] * len(batch)
                gone = sum(flags)
                if gone < len(batch):
                    batch = self._without_redelivered(batch, flags)
                self.let_go(batch)
                self._stats.done += gone
                if lost := len(batch) - gone:
                    self._stats.lost += lost
                    log.warning("%d messages of %r were lost while handled", lost, self._queue)
        finally:
            self._deleting = None

    def _without_redelivered(self, batch: list[Message], flags: list[bool]) -> list[Message]:
        """Return *batch* without those that were delivered to us anew: these are deleted next."""
        again = {
            message.id: message
            for message, gone in zip(batch, flags, strict=True)
            if not gone and self._last(message) is not message
        }
        self._done += again.values()
        return [message for message in batch if message.id not in again]

    def _last(self, message: Message) -> Message:
        """Return the last delivery of *message*."""
        return self._in_flight.get(message.id, message)

    async def _told(self, plan: Callable[[], Plan[T]]) -> T | None:
        """Follow *plan* until the server has answered; `None` if it cannot be done at all."""
        wait = pauses()
        while True:
            try:
                return await self._store.follow(plan())
            except (StoreUnavailable, StoreRefused) as error:
                log.warning("cannot settle messages of %r yet: %s", self._queue, error)
            except TamboError as error:
                # The queue is gone or damaged. The runner must go on, and nobody else will try.
                log.error("cannot settle messages of %r: %s", self._queue, error)  # noqa: TRY400
                return None
            await asyncio.sleep(next(wait))
