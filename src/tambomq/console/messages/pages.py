"""`list_messages`: pages of messages by state, searched within bounds."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from tambomq.console.messages.cursor import decode_cursor, encode_cursor
from tambomq.console.messages.lists import chasqui, gomq, kqueue, rsmq
from tambomq.console.messages.lists.source import MessageSource
from tambomq.console.messages.model import MessagePage, MessageRow, MessageState
from tambomq.console.messages.search import MessageSelector, parse_search
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidValue, WrongType
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

MAX_LOOKED_AT: Final = 10_000
"""Messages looked at for one page."""
MAX_SECONDS: Final = 1.0
"""Time that one page takes, approximately."""
MAX_LIMIT: Final = 500

_SEARCHED: Final = 500
"""Messages of one round trip of a search."""


async def list_messages(
    store: AsyncStore,
    ref: QueueRef,
    state: MessageState,
    *,
    cursor: str | None = None,
    limit: int = 50,
    find: str = "",
    name: str = "",
    rsmq_ns: str = NAMESPACE,
) -> MessagePage:
    """Return messages of a queue in one state.

    *find* is a search (see `tambomq.console.messages.search`), *name* an exact name. *cursor* is
    ``next`` of the page before. Raises `InvalidFormat`, `InvalidValue` and `QueueNotFound`.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidValue("limit", limit, f"from 1 to {MAX_LIMIT}")
    now_ms = await store.run(NOW)
    selector = parse_search(find, name, now_ms)
    source = _source(store, ref, state, now_ms, rsmq_ns)
    list_name = f"{ref} {state}"
    after = decode_cursor(list_name, cursor) if cursor else None
    total = None
    # A damaged key that this state does not need must not hide its messages.
    with suppress(WrongType):
        total = await source.total()
    reader = _PageReader(source, selector, limit)
    await reader.read(after)
    return MessagePage(
        queue=str(ref),
        state=state,
        rows=reader.rows,
        next=encode_cursor(list_name, reader.next) if reader.next is not None else None,
        total=total,
        looked_at=reader.looked_at,
        cut_off=reader.cut_off,
        note=source.note,
    )


class _PageReader:
    """Reads a source until a page is full, the source ends, or a limit is reached."""

    def __init__(self, source: MessageSource, selector: MessageSelector, limit: int) -> None:
        self._source, self._selector, self._limit = source, selector, limit
        self.rows: list[MessageRow] = []
        self.looked_at = 0
        self.cut_off = False
        self.next: tuple[str | int, ...] | None = None

    async def read(self, after: tuple[str | int, ...] | None) -> None:
        deadline = time.monotonic() + MAX_SECONDS
        while True:
            # One more than fits: so a page that has all the rest is known to be the last.
            wanted = self._limit - len(self.rows) + 1 if self._selector.is_any else _SEARCHED
            part = await self._source.part(after, min(wanted, MAX_LOOKED_AT - self.looked_at))
            self.looked_at += part.looked_at
            for index, item in enumerate(part.items):
                if self._selector.matches(item.row, item.body):
                    self.rows.append(item.row)
                    if len(self.rows) == self._limit:
                        is_last = index == len(part.items) - 1
                        self.next = part.next if is_last else item.position
                        return
            after = self.next = part.next
            if after is None:
                return
            if self.looked_at >= MAX_LOOKED_AT or time.monotonic() > deadline:
                self.cut_off = True
                return


def _source(
    store: AsyncStore, ref: QueueRef, state: MessageState, now_ms: int, rsmq_ns: str
) -> MessageSource:
    match ref.protocol:
        case "rsmq":
            return rsmq.source(store, ref, state, now_ms, rsmq_ns)
        case "chasqui":
            return chasqui.source(store, ref, state)
        case "gomq":
            return gomq.source(store, ref, state)
        case "kqueue":
            return kqueue.source(store, ref, state)


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000


NOW: Final = Call("TIME", (), (), _milliseconds, repeatable=True)
