"""Reads one KqueueMsgQ message from the queue's journal: nothing else stores one."""

from __future__ import annotations

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import EntryExcerpt
from tambomq.console.messages.body import PARSED_BYTES
from tambomq.console.messages.lists.journal import ENTRY_ID
from tambomq.console.model import QueueRef
from tambomq.errors import MessageNotFound
from tambomq.journal.keys import JournalKeys
from tambomq.store.aio import AsyncStore

_WHY = "KqueueMsgQ stores none; a message of its journal has the id of the journal's entry"


async def read_entry(store: AsyncStore, ref: QueueRef, id: str) -> EntryExcerpt:
    """Read a journal entry; raise `MessageNotFound` if there is none."""
    if not ENTRY_ID.fullmatch(id):
        raise MessageNotFound(ref.name, id, _WHY)
    journal = JournalKeys("kqueue", ref.name).journal
    page = await store.run(excerpts.entry(journal, id, ends=PARSED_BYTES))
    if not page.entries:
        raise MessageNotFound(ref.name, id, _WHY)
    return page.entries[0]
