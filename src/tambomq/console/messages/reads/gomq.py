"""Reads one GOMQ message: its places, its payload, its history, and what can hold it back."""

from __future__ import annotations

import time
from typing import Final, Literal

import msgspec

from tambomq.bulk import excerpts as bulk_excerpts
from tambomq.console.messages.body import PARSED_BYTES
from tambomq.console.messages.lists.gomq import MAIN, PeerQueue, peer_lists
from tambomq.console.messages.reads.history import HistoryEntries, history_of
from tambomq.console.model import QueueRef
from tambomq.errors import MessageNotFound, TamboError
from tambomq.gomq import keys
from tambomq.gomq.bulk import excerpts, scan
from tambomq.gomq.bulk.excerpts import ElementExcerpt, KeyState, decode_element
from tambomq.gomq.ops.admin import server_s
from tambomq.journal.keys import JournalKeys
from tambomq.store.aio import AsyncStore

MAX_SEARCHED: Final = 10_000
"""Elements of one list among which a message is searched for."""
SEARCH_S: Final = 5.0
MAX_COPIES: Final = 20
"""Copies of a message that are looked for: each peer has its own."""

_BATCH: Final = 1000
"""Messages of one key that a batch can have."""
_READ_BYTES: Final = PARSED_BYTES * 3 // 2
"""Of an element, whose payload is in base64."""


class CopyLocation(msgspec.Struct, frozen=True):
    """A place where a message is."""

    place: Literal["main", "dedicated", "handed"]
    list: PeerQueue
    index: int
    """How many messages are before it there."""
    silent_s: float | None = None
    """How long its peer has not observed."""


class ElementInfo(msgspec.Struct, kw_only=True):
    """All that was read of one message."""

    ref: QueueRef
    id: str
    now_ms: int
    copies: list[CopyLocation]
    element: ElementExcerpt | None
    consumers: int
    peers: int
    state: KeyState
    held_until_ms: int | None
    journal: HistoryEntries
    is_search_complete: bool = True


async def read_element(store: AsyncStore, ref: QueueRef, id: str) -> ElementInfo:
    """Read a message; raise `MessageNotFound` if nothing is known of it."""
    key = ref.name
    keys.check_key(key)
    journal = await history_of(
        store, JournalKeys("gomq", key).journal, id, ElementExcerpt(id, "", b"", 0).published_ms
    )
    search = _Search(store, key, id)
    await search.run()
    if not search.copies and not journal.entries:
        why = "" if search.is_complete else f"not among the first {MAX_SEARCHED:,} of each list"
        raise MessageNotFound(key, id, why)
    outcomes = await store.outcomes([excerpts.key_state(key), excerpts.backlog_held_until(key)])
    state, held_until = (None if isinstance(each, TamboError) else each for each in outcomes)
    return ElementInfo(
        ref=ref,
        id=id,
        now_ms=search.now_ms,
        copies=search.copies,
        element=search.element,
        consumers=len({each.consumer for each in search.lists}),
        peers=len(search.lists),
        state=state or KeyState(is_unsettled=False, full_list=""),
        held_until_ms=held_until,
        journal=journal,
        is_search_complete=search.is_complete,
    )


class _Search:
    """Looks for the copies of one message: in the main queue, then those of each peer."""

    def __init__(self, store: AsyncStore, key: str, id: str) -> None:
        self._store, self._key, self._id = store, key, id
        self.now_ms = 0
        self.lists: list[PeerQueue] = []
        self.copies: list[CopyLocation] = []
        self.element: ElementExcerpt | None = None
        self.is_complete = True

    async def run(self) -> None:
        self.now_ms = int(await self._store.run(server_s()) * 1000)
        self.lists = await peer_lists(self._store, self._key)
        deadline = time.monotonic() + SEARCH_S
        await self._search_list(MAIN, deadline)
        for each in self.lists if not self.copies else ():
            if time.monotonic() > deadline or len(self.copies) >= MAX_COPIES:
                self.is_complete = False
                return
            if not await self._search_batch(each):
                await self._search_list(each, deadline)

    async def _search_batch(self, each: PeerQueue) -> bool:
        names = (self._key, each.consumer, each.peer)
        batch = await self._store.run(excerpts.handed(*names, count=_BATCH, ends=256))
        for index, message in enumerate(batch.messages):
            if message.id == self._id:
                call = excerpts.handed(*names, index, 1, ends=_READ_BYTES)
                again = (await self._store.run(call)).messages
                is_same = bool(again) and again[0].id == self._id
                await self._add("handed", each, index, again[0] if is_same else message)
                return True
        return False

    async def _search_list(self, each: PeerQueue, deadline: float) -> None:
        first = 0
        name = each.name(self._key)
        while first < MAX_SEARCHED and time.monotonic() < deadline:
            try:
                found = await self._store.run(bulk_excerpts.elements(name, first, ends=256))
            except TamboError:
                return
            for index, excerpt in enumerate(found, first):
                if decode_element(excerpt).id == self._id:
                    call = bulk_excerpts.elements(name, index, 1, ends=_READ_BYTES)
                    again = await self._store.run(call)
                    whole = decode_element(again[0]) if again else decode_element(excerpt)
                    # The list may have lost its head meanwhile: then the excerpt must do.
                    same = whole if whole.id == self._id else decode_element(excerpt)
                    place: Literal["main", "dedicated"] = "dedicated" if each.consumer else "main"
                    await self._add(place, each, index, same)
                    return
            if not found:
                return
            first += len(found)
        self.is_complete = False

    async def _add(
        self,
        place: Literal["main", "dedicated", "handed"],
        each: PeerQueue,
        index: int,
        element: ElementExcerpt,
    ) -> None:
        seen_ms = None
        if each.peer:
            seen_ms = await self._store.run(scan.last_action(each.peer))
        silent_s = None if seen_ms is None else max(0, self.now_ms - seen_ms) / 1000
        self.copies.append(CopyLocation(place, each, index, silent_s))
        self.element = self.element or element
