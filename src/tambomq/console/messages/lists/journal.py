"""What a queue's journal says of messages that are through, newest first."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import NOTHING, EntryExcerpt
from tambomq.console.messages.body import preview, searched_text
from tambomq.console.messages.cursor import Position
from tambomq.console.messages.lists.source import ListPart, PlacedRow
from tambomq.console.messages.model import MessageRow
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat
from tambomq.journal import keys as fields
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import number
from tambomq.store.aio import AsyncStore

ENTRY_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)


class JournalSource:
    """The entries of a journal that say that a message is through."""

    def __init__(
        self,
        store: AsyncStore,
        journal: JournalKeys,
        ref: QueueRef,
        *,
        ends: Collection[str],
        note: str = "",
    ) -> None:
        """*ends* are the events that end a message; *note* is for a queue without a journal."""
        self._store, self._journal, self._ref, self._ends = store, journal, ref, ends
        self.note = note

    async def total(self) -> int | None:
        """Return `None`: entries of other events would have to be left out."""
        return None

    async def part(self, after: Position | None, count: int) -> ListPart:
        """Return entries before a position."""
        before = entry_position(after)
        call = excerpts.entries(self._journal.journal, before, newest_first=True, count=count)
        page = await self._store.run(call)
        if page.looked_at:
            self.note = ""
        items = [
            PlacedRow((entry.id,), journal_row(self._ref, entry), _body(entry))
            for entry in page.entries
            if entry.text(fields.EVENT) in self._ends
        ]
        return ListPart(items, page.looked_at, None if page.next is None else (page.next,))


def entry_position(after: Position | None) -> str | None:
    """Return a position in a stream; raise `InvalidFormat` if it is none."""
    match after:
        case None:
            return None
        case (str(id),) if ENTRY_ID.fullmatch(id):
            return id
    raise InvalidFormat("cursor", str(after)[:40], "as `next` of an earlier page")


def journal_row(ref: QueueRef, entry: EntryExcerpt) -> MessageRow:
    """Return a journal entry as lists show it; a message without an id has the entry's."""
    body = entry.fields.get(fields.BODY, NOTHING)
    at_ms = number(entry.fields.get(fields.AT, NOTHING).head) or int(entry.id.partition("-")[0])
    is_sent = entry.text(fields.EVENT) == fields.SENT
    return MessageRow(
        queue=str(ref),
        id=entry.text(fields.ID) or entry.id,
        name=entry.text(fields.NAME) or None if is_sent else None,
        holder=None if is_sent else entry.text(fields.NAME) or None,
        state="done",
        attempt=number(entry.fields.get(fields.ATTEMPT, NOTHING).head),
        added_ms=at_ms if is_sent else None,
        ended_ms=at_ms,
        size_bytes=body.size if fields.BODY in entry.fields else None,
        preview=preview(body.head, size=body.size),
    )


def _body(entry: EntryExcerpt) -> str:
    body = entry.fields.get(fields.BODY, NOTHING)
    return searched_text(body.head, is_whole=body.is_whole)
