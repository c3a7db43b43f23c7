"""RSMQ messages by state, in the order they are or become visible; dead ones newest first.

While pages are read, a message that is received goes to a later place, and may be seen again there.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tambomq.console.messages.body import preview, searched_text
from tambomq.console.messages.cursor import Position
from tambomq.console.messages.lists.journal import JournalSource
from tambomq.console.messages.lists.source import (
    EmptySource,
    ListPart,
    MessageSource,
    PlacedRow,
    members_after,
)
from tambomq.console.messages.model import MessageRow, MessageState
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, QueueNotFound
from tambomq.rsmq.bulk import excerpts, scan
from tambomq.rsmq.bulk.excerpts import MessageExcerpt
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, is_queue
from tambomq.rsmq.model import sent_ms
from tambomq.rsmq.ops.journal import journal_keys
from tambomq.rsmq.ops.replies import id_arg
from tambomq.store.aio import AsyncStore

_SCORE: Final = re.compile(r"-?[0-9.e+]{1,40}|-?inf")


def source(
    store: AsyncStore, ref: QueueRef, state: MessageState, now_ms: int, ns: str
) -> MessageSource:
    """Return the messages of a queue in *state*; raise `InvalidFormat` if it cannot be a queue."""
    keys = Keys(ns)
    if state == "done":
        keys.of(ref.name)
        return JournalSource(store, journal_keys(ns, ref.name), ref, ends=("deleted",))
    if state == "dead":
        keys.of(ref.name)
        if not is_queue(ref.name + DEAD_SUFFIX):
            return EmptySource()
    return RsmqStateSource(store, keys, ref, state, now_ms)


class RsmqStateSource:
    """The messages of one queue in one state."""

    note = ""

    def __init__(
        self, store: AsyncStore, keys: Keys, ref: QueueRef, state: MessageState, now_ms: int
    ) -> None:
        self._store, self._keys, self._ref, self._state = store, keys, ref, state
        self._now_ms = now_ms
        self._is_dead = state == "dead"
        self._queue = ref.name + DEAD_SUFFIX if self._is_dead else ref.name
        keys.of(self._queue)

    async def total(self) -> int | None:
        """Return how many are visible or dead; hidden messages would have to be read."""
        if self._is_dead:
            return await self._store.run(scan.count(self._keys, self._queue, "-inf", "+inf"))
        if self._state == "visible":
            high = str(self._now_ms)
            return await self._store.run(scan.count(self._keys, self._queue, "-inf", high))
        return None

    async def part(self, after: Position | None, count: int) -> ListPart:
        """Return messages after a position."""
        # Visible messages are those of the first page's time: what is received meanwhile and
        # becomes visible again is not seen twice, unless it was hidden for less than 1 ms.
        bound, at = (self._now_ms, None) if after is None else _position(after)

        async def fetch(score: str | None, skip: int, count: int) -> tuple[list[_Placed], bool]:
            low, high = self._range(bound)
            if score is not None:
                low, high = (low, score) if self._is_dead else (score, high)
            call = excerpts.page(
                self._keys, self._queue, low, high, skip, count, newest_first=self._is_dead
            )
            found = await self._store.run(call)
            return [_Placed(each) for each in found], len(found) < count

        try:
            found, is_end = await members_after(fetch, at, count, newest_first=self._is_dead)
        except QueueNotFound:
            if self._is_dead:
                return ListPart((), 0, None)
            raise
        items = [
            PlacedRow((bound, *_text_place(place)), row, _searched(each.message))
            for place, each in found
            if (row := self._row(each.message)) is not None
        ]
        end = None if is_end or not found else (bound, *_text_place(found[-1][0]))
        return ListPart(items, len(found), end)

    def _range(self, bound_ms: int) -> tuple[str, str]:
        if self._is_dead:
            return "-inf", "+inf"
        return ("-inf", str(bound_ms)) if self._state == "visible" else (f"({bound_ms}", "+inf")

    def _row(self, message: MessageExcerpt) -> MessageRow | None:
        if self._state in ("in_flight", "delayed") and (message.rc > 0) != (
            self._state == "in_flight"
        ):
            return None
        return row_of(self._ref, self._state, message)


def row_of(ref: QueueRef, state: MessageState, message: MessageExcerpt) -> MessageRow:
    """Return a message as lists show it."""
    return MessageRow(
        queue=str(ref),
        id=message.id,
        state=state,
        attempt=message.rc,
        added_ms=sent_ms(message.id),
        due_ms=message.visible_at_ms if state in ("in_flight", "delayed") else None,
        died_ms=message.visible_at_ms if state == "dead" and not message.rc else None,
        size_bytes=max(0, message.size),
        error=message.reason if state == "dead" else None,
        preview="(no body)" if message.size < 0 else preview(message.head, size=message.size),
    )


class _Placed(msgspec.Struct, frozen=True):
    message: MessageExcerpt

    @property
    def place(self) -> tuple[str, bytes]:
        stored = id_arg(self.message.id)
        return self.message.score, stored.encode() if isinstance(stored, str) else stored


def _searched(message: MessageExcerpt) -> str:
    return searched_text(message.head, is_whole=len(message.head) == message.size)


def _text_place(place: tuple[str, int, bytes]) -> tuple[str, int, str]:
    score, skip, order = place
    return score, skip, order.decode("latin-1")


def _position(after: Position) -> tuple[int, tuple[str, int, bytes]]:
    match after:
        case (int(bound), str(score), int(skip), str(last)) if _SCORE.fullmatch(score):
            return bound, (score, skip, last.encode("latin-1", "replace"))
    raise InvalidFormat("cursor", str(after)[:40], "as `next` of an earlier page")
