"""Settles a worker's messages: deletes, retries, dead-letters or releases them.

Messages that finish while a delete is in flight are deleted together by the next one. While
the server is unreachable or refuses writes, settling is retried and the messages stay leased,
so that no other worker runs them. If their lease expired meanwhile and this worker receives
them again, they are settled by their new receipts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec

from tambomq.clock import backoff_delays
from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.journal.policy import JournalPolicy
from tambomq.log import with_fields
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.model import Message
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.rsmq.worker.lease import receipts
from tambomq.runtime.heartbeat import Heartbeat, NoHeartbeat
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Plan, only

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOST = "%d handled messages of %r were redelivered or deleted before they were settled"


class WorkerStats(msgspec.Struct):
    """Counters of a worker since it was created."""

    received: int = 0
    done: int = 0
    """Handled and deleted."""
    failed: int = 0
    """Handler calls that raised or timed out."""
    retried: int = 0
    """Made visible again for another attempt."""
    buried: int = 0
    """Moved to the dead-letter queue."""
    lost: int = 0
    """Handled, but received by another worker or deleted in the meantime. May count too many: a
    delete that is repeated after a broken connection finds its message gone."""


class Settler:
    """Settles the messages of one queue and tracks which are in flight."""

    def __init__(
        self,
        store: AsyncStore,
        keys: Keys,
        queue: str,
        heartbeat: Heartbeat,
        stats: WorkerStats,
        journal: JournalPolicy | None = None,
    ) -> None:
        """Count into *stats*."""
        self._store, self._keys, self._queue, self._journal = store, keys, queue, journal
        self._heartbeat, self._log = heartbeat, with_fields(log, queue=queue)
        self._to_delete: list[Message] = []
        self._deleting: asyncio.Task[None] | None = None
        self.stats = stats
        self._renews = not isinstance(heartbeat, NoHeartbeat)
        self._in_flight: dict[str, Message] = {}
        """The latest delivery of each message in flight, by id."""
        self.unsettled = 0
        """Messages that are handled and not yet deleted."""

    def track(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Track and renew *messages*; return those to run.

        A message that is in flight already was redelivered because its lease expired while
        renewals failed. Its handler runs or has ended: it is not run again, but settled by its
        new receipt.
        """
        self._heartbeat.hold(receipts(messages))
        if not self._renews:
            # Without renewal, a redelivered message is a new one: its lease has expired.
            return messages
        in_flight = self._in_flight
        to_run = [message for message in messages if message.id not in in_flight]
        for message in messages:
            in_flight[message.id] = message
        return to_run

    def untrack(self, messages: Iterable[Message]) -> None:
        """Stop tracking and renewing *messages*."""
        ids = [message.id for message in messages]
        self._heartbeat.let_go(ids)
        for id in ids:
            self._in_flight.pop(id, None)

    def done(self, message: Message) -> None:
        """Delete *message* with the next batch."""
        self._to_delete.append(message)
        self.unsettled += 1
        if self._deleting is None:
            self._deleting = asyncio.create_task(self._delete())

    async def retry(self, message: Message, wait_s: float) -> None:
        """Make *message* visible again in *wait_s* seconds."""
        message = self._latest(message)
        self.untrack((message,))
        hide = settle_ops.hide(self._keys, self._queue, message.id, wait_s, receipt=message.receipt)
        if await self._retry_until_settled(lambda: only(hide)):
            self.stats.retried += 1

    async def bury(self, message: Message, dead: str, why: str, *, realtime: bool) -> None:
        """Move *message* to queue *dead*; *why* may include a traceback."""
        buried, tried = None, None
        while not buried and tried is not (message := self._latest(message)):
            tried = message
            bury = settle_ops.bury(
                self._keys,
                self._queue,
                message,
                dead,
                why,
                realtime=realtime,
                journal=self._journal,
            )
            buried = await self._retry_until_settled(partial(only, bury))
        self.stats.buried += bool(buried)
        self.untrack((message,))

    async def drain(self) -> None:
        """Wait until all deletes are done."""
        if self._deleting is not None:
            await self._deleting

    async def _delete(self) -> None:
        try:
            while self._to_delete:
                batch, self._to_delete = [self._latest(message) for message in self._to_delete], []
                delete = partial(
                    settle_ops.delete_batch, self._keys, self._queue, batch, journal=self._journal
                )
                flags = await self._retry_until_settled(delete) or [False] * len(batch)
                deleted = sum(flags)
                if deleted < len(batch):
                    batch = self._without_redelivered(batch, flags)
                self.untrack(batch)
                self.unsettled -= len(batch)
                self.stats.done += deleted
                if lost := len(batch) - deleted:
                    self.stats.lost += lost
                    self._say(logging.WARNING, _LOST, lost, self._queue, extra={"count": lost})
        finally:
            self._deleting = None

    def _without_redelivered(self, batch: list[Message], flags: list[bool]) -> list[Message]:
        """Return *batch* without redelivered messages, which the next delete takes."""
        redelivered = {
            message.id: message
            for message, deleted in zip(batch, flags, strict=True)
            if not deleted and self._latest(message) is not message
        }
        self._to_delete += redelivered.values()
        return [message for message in batch if message.id not in redelivered]

    def _latest(self, message: Message) -> Message:
        """Return the latest delivery of *message*."""
        return self._in_flight.get(message.id, message)

    async def _retry_until_settled(self, plan: Callable[[], Plan[T]]) -> T | None:
        """Run *plan* until the server answers; `None` if the queue is gone or damaged."""
        wait = backoff_delays()
        while True:
            try:
                return await self._store.follow(plan())
            except (StoreUnavailable, StoreRefused) as error:
                text = "cannot settle messages of %r yet: %s"
                self._say(logging.WARNING, text, self._queue, error)
            except TamboError as error:
                # The queue is gone or damaged: no retry helps, and the runner must go on.
                self._say(logging.ERROR, "cannot settle messages of %r: %s", self._queue, error)
                return None
            await asyncio.sleep(next(wait))

    def _say(self, level: int, text: str, *args: object, extra: Any = None) -> None:
        """Log; drop what a log handler of the user raises, so that the messages are settled."""
        with suppress(Exception):
            self._log.log(level, text, *args, extra=extra)
