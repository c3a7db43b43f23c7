"""Reads one RSMQ message: its place, its contents, its history, and what can hold it back."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from tambomq.bulk.lease_model import LeaseInfo
from tambomq.console.messages.body import PARSED_BYTES
from tambomq.console.messages.reads.history import HistoryEntries, history_of
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, MessageNotFound, QueueNotFound, TamboError
from tambomq.rsmq.bulk import excerpts, scan
from tambomq.rsmq.bulk.excerpts import MessageExcerpt
from tambomq.rsmq.bulk.lease_admin import RsmqLeaseAdminOps
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_id, is_queue
from tambomq.rsmq.model import QueueAttributes, sent_ms
from tambomq.rsmq.ops import queues
from tambomq.rsmq.ops.journal import journal_keys
from tambomq.store.aio import AsyncStore

BODY_BYTES: Final = PARSED_BYTES
"""Of a body that is read; longer ones are not parsed."""


class MessageRecord(msgspec.Struct, kw_only=True):
    """All that was read of one message."""

    ref: QueueRef
    ns: str
    id: str
    now_ms: int
    message: MessageExcerpt | None
    is_dead: bool = False
    attributes: QueueAttributes | None = None
    lease: LeaseInfo | None = None
    """The Spark lease whose open claim has it."""
    journal: HistoryEntries

    @property
    def added_ms(self) -> int | None:
        """When it was sent, by its id."""
        return sent_ms(self.id)


async def read_record(store: AsyncStore, ref: QueueRef, id: str, ns: str) -> MessageRecord:
    """Read a message; raise `MessageNotFound` if nothing is known of it."""
    keys = Keys(ns)
    keys.of(ref.name)
    try:
        check_id(id)
    except InvalidFormat as error:
        raise MessageNotFound(ref.name, id, f"an id has {error.rule}") from None
    now_ms = await store.run(scan.now())
    message, is_dead = await _message(store, keys, ref.name, id), False
    if message is None and is_queue(ref.name + DEAD_SUFFIX):
        message = await _message(store, keys, ref.name + DEAD_SUFFIX, id)
        is_dead = message is not None
    journal = await history_of(store, journal_keys(ns, ref.name).journal, id, sent_ms(id))
    if message is None and not journal.entries:
        raise MessageNotFound(ref.name, id)
    attributes, lease = None, None
    with suppress(TamboError):
        attributes = await store.run(queues.attributes(keys, ref.name))
    with suppress(TamboError):
        lease = await _lease(store, keys, ref.name, id)
    return MessageRecord(
        ref=ref,
        ns=ns,
        id=id,
        now_ms=now_ms,
        message=message,
        is_dead=is_dead,
        attributes=attributes,
        lease=lease,
        journal=journal,
    )


async def _lease(store: AsyncStore, keys: Keys, queue: str, id: str) -> LeaseInfo | None:
    for lease in await store.follow(RsmqLeaseAdminOps(keys).list_leases(queue)):
        if lease.size and id in await store.run(excerpts.claimed(keys, queue, lease.name)):
            return lease
    return None


async def _message(store: AsyncStore, keys: Keys, queue: str, id: str) -> MessageExcerpt | None:
    try:
        return await store.run(excerpts.detail(keys, queue, id, BODY_BYTES))
    except QueueNotFound:
        return None
