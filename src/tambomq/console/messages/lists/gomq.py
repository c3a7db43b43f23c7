"""GOMQ messages by state: of the main queue, then of each peer's dedicated queue.

A message that was dispatched is listed once for each peer that has not observed it. Lists lose
elements at their head, so a place is an index and a digest of the element there: if another one is
there now, the last one seen is searched for before it.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from tambomq.bulk import excerpts as bulk_excerpts
from tambomq.bulk.excerpts import Excerpt
from tambomq.console.messages.body import preview, searched_text
from tambomq.console.messages.cursor import Position
from tambomq.console.messages.lists.journal import JournalSource
from tambomq.console.messages.lists.source import (
    EmptySource,
    ListPart,
    MessageSource,
    PlacedRow,
)
from tambomq.console.messages.model import MessageRow, MessageState
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, WrongType
from tambomq.gomq import keys
from tambomq.gomq.bulk import excerpts, scan
from tambomq.gomq.bulk.excerpts import ElementExcerpt, decode_element
from tambomq.journal.keys import JournalKeys
from tambomq.store.aio import AsyncStore

MAX_SEARCHED: Final = 10_000
"""Elements among which a lost place is searched for."""
_LISTS_AT_ONCE: Final = 200


class PeerQueue(msgspec.Struct, frozen=True, order=True):
    """The main queue (with empty names), or the dedicated queue of a peer."""

    consumer: str
    peer: str

    @property
    def holder(self) -> str | None:
        """The name of the peer for people; `None` for the main queue."""
        return f"{self.consumer}/{self.peer}" if self.consumer else None

    def name(self, key: str) -> str:
        """Return the Redis key of the list."""
        return keys.messages(key, self.consumer, self.peer) if self.consumer else keys.queue(key)


MAIN: Final = PeerQueue("", "")


def source(store: AsyncStore, ref: QueueRef, state: MessageState) -> MessageSource:
    """Return the messages of a key in *state*; raise `InvalidFormat` if it cannot be a key."""
    keys.check_key(ref.name)
    match state:
        case "visible":
            return _Undelivered(store, ref)
        case "in_flight":
            return _Handed(store, ref)
        case "done":
            journal = JournalKeys("gomq", ref.name)
            return JournalSource(store, journal, ref, ends=("delivered",))
    return EmptySource("GOMQ has no delays." if state == "delayed" else "GOMQ has no dead letters.")


async def peer_lists(store: AsyncStore, key: str) -> list[PeerQueue]:
    """Return the dedicated queues of a key, in order, whether or not they have messages."""
    consumers = await store.run(scan.consumers(key))
    found: list[PeerQueue] = []
    for first in range(0, len(consumers), _LISTS_AT_ONCE):
        some = consumers[first : first + _LISTS_AT_ONCE]
        peers = await store.outcomes([scan.peers(consumer) for consumer in some])
        for consumer, each in zip(some, peers, strict=True):
            found += [PeerQueue(consumer, peer) for peer in each] if isinstance(each, list) else []
    return sorted(found)


class _Undelivered:
    note = ""

    def __init__(self, store: AsyncStore, ref: QueueRef) -> None:
        self._store, self._ref = store, ref

    async def total(self) -> int | None:
        lists = [MAIN, *await peer_lists(self._store, self._ref.name)]
        return sum([length for _, length in await self._lengths(lists)])

    async def part(self, after: Position | None, count: int) -> ListPart:
        at, index, digest = _position(after)
        lists = [MAIN, *await peer_lists(self._store, self._ref.name)]
        if digest:
            index = await self._index_after(at, index, digest)
        for each, length in await self._lengths([each for each in lists if each >= at]):
            first = index if each == at else 0
            if length <= first:
                continue
            items = await self._items(each, first, count)
            if items:
                return ListPart(items, len(items), items[-1].position)
        return ListPart((), 0, None)

    async def _items(self, each: PeerQueue, first: int, count: int) -> list[PlacedRow]:
        call = bulk_excerpts.elements(each.name(self._ref.name), first, count)
        found = await self._store.run(call)
        return [
            _item(self._ref, "visible", each, first + place, excerpt)
            for place, excerpt in enumerate(found)
        ]

    async def _index_after(self, at: PeerQueue, index: int, digest: str) -> int:
        """Return the index after the element that was seen last at *index* - 1."""
        name, end = at.name(self._ref.name), index
        lowest = max(0, index - MAX_SEARCHED)
        while end > lowest:
            first = max(lowest, end - (1 if end == index else bulk_excerpts.PAGE))
            call = bulk_excerpts.elements(name, first, end - first)
            found = [_digest(each) for each in await self._store.run(call)]
            if digest in found:
                return first + len(found) - found[::-1].index(digest)
            end = first
        return lowest

    async def _lengths(self, lists: list[PeerQueue]) -> list[tuple[PeerQueue, int]]:
        found: list[tuple[PeerQueue, int]] = []
        for first in range(0, len(lists), _LISTS_AT_ONCE):
            some = lists[first : first + _LISTS_AT_ONCE]
            calls = [scan.length(each.name(self._ref.name)) for each in some]
            for each, length in zip(some, await self._store.outcomes(calls), strict=True):
                if isinstance(length, int):
                    found.append((each, length))
                elif not isinstance(length, WrongType):
                    raise length
        return found


class _Handed:
    note = ""

    def __init__(self, store: AsyncStore, ref: QueueRef) -> None:
        self._store, self._ref = store, ref

    async def total(self) -> int | None:
        return None

    async def part(self, after: Position | None, count: int) -> ListPart:
        at, index, batch = _position(after)
        lists = [each for each in await peer_lists(self._store, self._ref.name) if each >= at]
        for first in range(0, len(lists), _LISTS_AT_ONCE):
            some = lists[first : first + _LISTS_AT_ONCE]
            calls = [
                excerpts.handed(
                    *(self._ref.name, each.consumer, each.peer),
                    index if each == at else 0,
                    count,
                )
                for each in some
            ]
            for each, found in zip(some, await self._store.run_all(calls), strict=True):
                start = index if each == at else 0
                # Another batch than the one that was seen: it is for the next look at the list.
                if not found.messages or (each == at and batch and found.name != batch):
                    continue
                items = [
                    PlacedRow(
                        (each.consumer, each.peer, start + place + 1, found.name),
                        element_row(self._ref, "in_flight", each, message),
                        _searched(message),
                    )
                    for place, message in enumerate(found.messages)
                ]
                return ListPart(items, len(items), items[-1].position)
        return ListPart((), 0, None)


def _item(
    ref: QueueRef, state: MessageState, each: PeerQueue, index: int, found: Excerpt
) -> PlacedRow:
    element = decode_element(found)
    position = (each.consumer, each.peer, index + 1, _digest(found))
    return PlacedRow(position, element_row(ref, state, each, element), _searched(element))


def element_row(
    ref: QueueRef, state: MessageState, each: PeerQueue, element: ElementExcerpt
) -> MessageRow:
    """Return a message as lists show it."""
    return MessageRow(
        queue=str(ref),
        id=element.id,
        state=state,
        added_ms=element.published_ms,
        holder=each.holder,
        size_bytes=element.size,
        error=None if element.id else "not a message of GOMQ",
        preview=preview(element.payload, size=element.size),
    )


def _searched(element: ElementExcerpt) -> str:
    return searched_text(element.payload, is_whole=len(element.payload) == element.size)


def _digest(found: Excerpt) -> str:
    # Tells elements apart, against no attacker.
    data = found.head + found.tail + b"%d" % found.size
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _position(after: Position | None) -> tuple[PeerQueue, int, str]:
    match after:
        case None:
            return MAIN, 0, ""
        case (str(consumer), str(peer), int(index), str(last)):
            return PeerQueue(consumer, peer), index, last
    raise InvalidFormat("cursor", str(after)[:40], "as `next` of an earlier page")
