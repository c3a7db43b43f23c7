"""ChasquiMQ jobs by state: in the order in which they run, dead and done ones newest first."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import NOTHING, EntryExcerpt, Excerpt
from tambomq.chasqui.bulk import scan
from tambomq.chasqui.keys import GROUP, NAME, PAYLOAD, RETURNED, Keys
from tambomq.chasqui.ops import admin
from tambomq.chasqui.ops.ended_jobs import ENDED
from tambomq.chasqui.wire.excerpts import decode_envelope_excerpt, decode_member_excerpt
from tambomq.console.messages.body import preview, searched_text
from tambomq.console.messages.cursor import Position
from tambomq.console.messages.lists.journal import entry_position
from tambomq.console.messages.lists.source import (
    ListPart,
    MessageSource,
    PlacedRow,
    members_after,
)
from tambomq.console.messages.model import MessageRow, MessageState
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, RemoteProtocolError, StoreError
from tambomq.failures import headline
from tambomq.ids import ulid_ms
from tambomq.store.aio import AsyncStore

NO_GROUP: Final = ("NOGROUP", "NOKEY")
"""Kinds of errors that mean: no worker has ever connected."""

_SCORE: Final = re.compile(r"-?[0-9.e+]{1,40}|-?inf")
_ORDER_BYTES: Final = 512
"""Of a member, by which a place in the delayed jobs is known: name and id are in them."""
_RAN: Final = ("retries_exhausted", "unrecoverable")
"""Reasons of dead letters whose last run failed, which their envelope does not count."""


def source(store: AsyncStore, ref: QueueRef, state: MessageState) -> MessageSource:
    """Return the jobs of a queue in *state*; raise `InvalidFormat` if it cannot be a queue."""
    kinds: dict[MessageState, type[_Jobs]] = {
        "visible": _Waiting,
        "in_flight": _InFlight,
        "delayed": _Delayed,
        "dead": _Dead,
        "done": _Ended,
    }
    return kinds[state](store, ref)


class _Jobs:
    note = ""

    def __init__(self, store: AsyncStore, ref: QueueRef) -> None:
        self._store, self._ref, self._keys = store, ref, Keys(ref.name)

    async def total(self) -> int | None:
        raise NotImplementedError

    async def part(self, after: Position | None, count: int) -> ListPart:
        raise NotImplementedError


class _Waiting(_Jobs):
    async def total(self) -> int | None:
        return (await self._store.follow(admin.counts(self._keys, GROUP))).waiting

    async def part(self, after: Position | None, count: int) -> ListPart:
        call = excerpts.entries(self._keys.stream, entry_position(after), count=count)
        page = await self._store.run(call)
        taken = await self._taken(page.entries) if page.entries else set[str]()
        items = [
            PlacedRow((entry.id,), *entry_item(self._ref, "visible", entry))
            for entry in page.entries
            if entry.id not in taken
        ]
        return ListPart(items, page.looked_at, None if page.next is None else (page.next,))

    async def _taken(self, entries: list[EntryExcerpt]) -> set[str]:
        """Return the entries that workers have; those given back wait again."""
        low, high = entries[0].id, entries[-1].id
        taken: set[str] = set()
        while True:
            pending = await pending_page(self._store, self._keys, low, high)
            taken |= {each.entry for each in pending if each.consumer != RETURNED}
            if len(pending) < scan.COUNT:
                return taken
            low = f"({pending[-1].entry}"


class _InFlight(_Jobs):
    async def total(self) -> int | None:
        return (await self._store.follow(admin.counts(self._keys, GROUP))).active

    async def part(self, after: Position | None, count: int) -> ListPart:
        last = entry_position(after)
        low = "-" if last is None else f"({last}"
        pending = (await pending_page(self._store, self._keys, low, "+"))[:count]
        calls = [excerpts.entry(self._keys.stream, each.entry) for each in pending]
        pages = await self._store.run_all(calls) if calls else []
        items = [
            PlacedRow((each.entry,), *entry_item(self._ref, "in_flight", page.entries[0], each))
            for each, page in zip(pending, pages, strict=True)
            # An entry that was trimmed is still pending, but there is nothing to run.
            if page.entries and each.consumer != RETURNED
        ]
        end = None if len(pending) < count else (pending[-1].entry,)
        return ListPart(items, len(pending), end)


class _Delayed(_Jobs):
    async def total(self) -> int | None:
        return await self._store.run(scan.count(self._keys.delayed, "-inf", "+inf"))

    async def part(self, after: Position | None, count: int) -> ListPart:
        async def fetch(score: str | None, skip: int, count: int) -> tuple[list[_Member], bool]:
            call = excerpts.members(self._keys.delayed, score or "-inf", "+inf", skip, count)
            found, is_end = await self._store.run(call)
            return [_Member(*each) for each in found], is_end

        found, is_end = await members_after(fetch, _member_position(after), count)
        items = [
            PlacedRow(_text_place(place), *member_item(self._ref, each.member, each.score))
            for place, each in found
        ]
        end = None if is_end or not found else _text_place(found[-1][0])
        return ListPart(items, len(found), end)


class _Dead(_Jobs):
    async def total(self) -> int | None:
        return await self._store.run(scan.length(self._keys.dlq))

    async def part(self, after: Position | None, count: int) -> ListPart:
        before = entry_position(after)
        call = excerpts.entries(self._keys.dlq, before, newest_first=True, count=count)
        page = await self._store.run(call)
        items = [
            PlacedRow((entry.id,), *entry_item(self._ref, "dead", entry)) for entry in page.entries
        ]
        return ListPart(items, page.looked_at, None if page.next is None else (page.next,))


class _Ended(_Jobs):
    async def total(self) -> int | None:
        return None

    async def part(self, after: Position | None, count: int) -> ListPart:
        before = entry_position(after)
        # Of each job that ran there are at least two events, and the first of them is no end.
        call = excerpts.entries(self._keys.events, before, newest_first=True, count=2 * count)
        page = await self._store.run(call)
        items = [
            PlacedRow((entry.id,), row, "")
            for entry in page.entries
            if (row := done_row(self._ref, entry)) is not None
        ]
        return ListPart(items, page.looked_at, None if page.next is None else (page.next,))


class PendingEntry(msgspec.Struct, frozen=True):
    """An entry that was delivered and is not settled."""

    entry: str
    consumer: str
    idle_ms: int
    deliveries: int


async def pending_page(store: AsyncStore, keys: Keys, low: str, high: str) -> list[PendingEntry]:
    """Return pending entries from *low* to *high*; none if no worker has ever connected."""
    try:
        rows = await store.run(scan.pending(keys, GROUP, low, high))
    except StoreError as error:
        if error.kind in NO_GROUP:
            return []
        raise
    return [
        PendingEntry(id.decode(), consumer.decode("utf-8", "replace"), idle_ms, deliveries)
        for id, consumer, idle_ms, deliveries in rows
    ]


# --- rows ---


def entry_item(
    ref: QueueRef, state: MessageState, entry: EntryExcerpt, pending: PendingEntry | None = None
) -> tuple[MessageRow, str]:
    """Return a stream entry as lists show it, and the text in which a search looks."""
    more: dict[str, Any] = {"name": entry.text(NAME) or None}
    if state == "dead":
        reason = entry.text(b"reason")
        detail = headline(entry.text(b"error_type"), entry.text(b"detail"))
        more["error"] = ": ".join(filter(None, (reason, detail)))
        more["died_ms"] = entry_ms(entry.id)
    if pending is not None:
        more["holder"] = pending.consumer
    ran = pending is not None or more.get("error", "").startswith(_RAN)
    return _item(ref, state, entry.fields.get(PAYLOAD, NOTHING), entry.id, ran=ran, **more)


def member_item(ref: QueueRef, member: Excerpt, score: bytes) -> tuple[MessageRow, str]:
    """Return a delayed job as lists show it, and the text in which a search looks."""
    due_ms = scan.moment(score)
    try:
        name, envelope = decode_member_excerpt(member)
    except RemoteProtocolError:
        name, envelope = "", member
    return _item(ref, "delayed", envelope, "", name=name or None, due_ms=due_ms)


def _item(
    ref: QueueRef,
    state: MessageState,
    stored: Excerpt,
    entry_id: str,
    *,
    ran: bool = False,
    **more: Any,
) -> tuple[MessageRow, str]:
    try:
        envelope, size = decode_envelope_excerpt(stored)
    except RemoteProtocolError:
        # Whatever it is, operators must see it: its entry is its only name.
        row = MessageRow(
            queue=str(ref),
            id=entry_id or stored.head[:64].hex(),
            state=state,
            size_bytes=stored.size,
            preview=preview(stored.head, size=stored.size),
            **{"added_ms": entry_ms(entry_id) if entry_id and state != "dead" else None, **more},
        )
        return row, searched_text(stored.head, is_whole=stored.is_whole)
    head = envelope.payload
    row = MessageRow(
        queue=str(ref),
        id=envelope.id,
        state=state,
        attempt=envelope.attempt + ran,
        max_attempts=envelope.retry.max_attempts if envelope.retry else None,
        added_ms=envelope.created_at_ms or None,
        size_bytes=size,
        preview=preview(head, size=size, prefer="msgpack"),
        **more,
    )
    return row, searched_text(head, is_whole=len(head) == size, prefer="msgpack")


def done_row(ref: QueueRef, event: EntryExcerpt) -> MessageRow | None:
    """Return the job that an event ended; `None` if it ended none, or it is dead."""
    name, id = event.text(b"e"), event.text(b"id")
    if name not in ENDED or name == "dlq" or not id:
        return None
    attempt = event.text(b"attempt")
    return MessageRow(
        queue=str(ref),
        id=id,
        name=event.text(NAME) or None,
        state="done",
        attempt=int(attempt) if attempt.isdigit() else None,
        added_ms=ulid_ms(id),
        ended_ms=entry_ms(event.id),
        error="cancelled" if name == "cancelled" else None,
    )


def entry_ms(id: str) -> int:
    """Return the time in a stream id."""
    return int(id.partition("-")[0])


class _Member(msgspec.Struct, frozen=True):
    member: Excerpt
    score: bytes

    @property
    def place(self) -> tuple[str, bytes]:
        return self.score.decode(), self.member.head[:_ORDER_BYTES]


def _text_place(place: tuple[str, int, bytes]) -> Position:
    score, skip, order = place
    return score, skip, order.decode("latin-1")


def _member_position(after: Position | None) -> tuple[str, int, bytes] | None:
    match after:
        case None:
            return None
        case (str(score), int(skip), str(last)) if _SCORE.fullmatch(score):
            return score, skip, last.encode("latin-1", "replace")
    raise InvalidFormat("cursor", str(after)[:40], "as `next` of an earlier page")
