"""What events and journals say of one message, searched within bounds."""

from __future__ import annotations

from typing import Final

import msgspec

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import EntryExcerpt
from tambomq.console.messages.phrases import count, moment
from tambomq.errors import WrongType
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

FORWARD_PAGES: Final = 6
"""Pages that are read from the time on at which the message was added."""
BACK_PAGES: Final = 14
"""Pages that are read from the newest entry back."""
_TRIMMED_ABOVE: Final = 1000
"""A shorter stream has hardly been trimmed: it begins when the queue did."""
_SKEW_MS: Final = 5_000
"""A message may carry so much later a time than the server's, as clocks differ."""


class HistoryEntries(msgspec.Struct, frozen=True):
    """Entries of one stream about one message, in their order."""

    entries: list[EntryExcerpt]
    looked_at: int
    is_complete: bool
    """Whether all entries since the message was added were looked at."""
    first_ms: int | None
    """The time of the oldest entry that the stream still has; `None` if it has none."""
    length: int = 0
    """Entries of the stream."""


_NONE: Final = HistoryEntries([], looked_at=0, is_complete=True, first_ms=None)


async def history_of(
    store: AsyncStore, stream: str, id: str, added_ms: int | None
) -> HistoryEntries:
    """Return the entries of *stream* whose field ``id`` is *id*."""
    try:
        first = (await store.run(excerpts.entries(stream, count=1))).entries
        if not first:
            return _NONE
        found = await _search(store, stream, id, added_ms, int(first[0].id.partition("-")[0]))
        return msgspec.structs.replace(found, length=await store.run(_length(stream)))
    except WrongType:
        # Another application's key: the message is shown without its history.
        return _NONE


async def _search(
    store: AsyncStore, stream: str, id: str, added_ms: int | None, first_ms: int
) -> HistoryEntries:
    found: dict[str, EntryExcerpt] = {}
    looked_at = 0
    start = "0-0" if added_ms is None else f"{max(0, added_ms - _SKEW_MS)}-0"
    after: str | None = start
    for _ in range(FORWARD_PAGES):
        page = await store.run(excerpts.entries(stream, after, id=id))
        looked_at += page.looked_at
        found |= {entry.id: entry for entry in page.entries}
        after = page.next
        if after is None:
            break
    before: str | None = None
    is_complete = after is None
    for _ in range(BACK_PAGES if after is not None else 0):
        page = await store.run(
            excerpts.entries(stream, before, newest_first=True, until=after, id=id)
        )
        looked_at += page.looked_at
        found |= {entry.id: entry for entry in page.entries}
        before = page.next
        if before is None:
            is_complete = True
            break
    in_order = sorted(found.values(), key=lambda entry: _order(entry.id))
    return HistoryEntries(in_order, looked_at, is_complete, first_ms)


def gaps(history: HistoryEntries, what: str, added_ms: int | None) -> str:
    """Return a sentence about what *history* may lack; '' if it lacks nothing."""
    if not history.is_complete:
        return f"Only {count(history.looked_at, 'entry', 'entries')} of the {what} were looked at."
    first_ms = history.first_ms
    if history.length >= _TRIMMED_ABOVE and first_ms and added_ms and added_ms < first_ms:
        return f"The {what} begin at {moment(first_ms)}, after it was added."
    return ""


def _length(stream: str) -> Call[int]:
    return Call("XLEN", (stream,), (), int, repeatable=True)


def _order(id: str) -> tuple[int, int]:
    ms, _, sequence = id.partition("-")
    return int(ms), int(sequence or 0)
