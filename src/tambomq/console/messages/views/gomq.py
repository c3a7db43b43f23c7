"""The page of one GOMQ message, made of what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tambomq.console.messages.body import decode_body
from tambomq.console.messages.commands import explain_command, redis_commands
from tambomq.console.messages.explain import explain
from tambomq.console.messages.lists.gomq import MAIN, element_row
from tambomq.console.messages.model import MessageDetail, MessageRow, MessageState, TimelineEntry
from tambomq.console.messages.phrases import ago, count, duration, moment, size
from tambomq.console.messages.reads.gomq import CopyLocation, ElementInfo
from tambomq.console.messages.reads.history import gaps
from tambomq.console.messages.situation import Holder, QueueLine, Situation
from tambomq.console.messages.timeline import journal_entries, merged, time_of
from tambomq.gomq import keys
from tambomq.gomq.bulk.excerpts import ElementExcerpt
from tambomq.gomq.model import PEER_TIMEOUT_S

_PLACES = {
    "main": "in the main queue",
    "dedicated": "waits for {}",
    "handed": "received and not acknowledged by {}",
}


def element_detail(record: ElementInfo) -> MessageDetail:
    """Return the page of a message."""
    it, element = element_situation(record), record.element
    return MessageDetail(
        at_ms=record.now_ms,
        row=_row(record, it),
        why=explain(it),
        body=None if element is None else decode_body(element.payload, size=element.size),
        facts=list(_facts(record, it)),
        headers=[("timestamp", element.timestamp)] if element and element.timestamp else [],
        timeline=merged(_from_state(record), journal_entries(record.journal.entries)),
        timeline_note=_note(record),
        commands=[*redis_commands(_steps(record)), *explain_command(record.ref, record.id)],
    )


def element_situation(record: ElementInfo) -> Situation:
    """Return what can hold a message back: its first copy decides."""
    delivered = [each for each in record.journal.entries if each.text(b"e") == "delivered"]
    if not record.copies:
        return Situation(
            protocol="gomq",
            queue=record.ref.name,
            now_ms=record.now_ms,
            state="done",
            ended="delivered" if delivered else "gone",
            ended_ms=time_of(delivered[-1]) if delivered else None,
        )
    first = _slowest(record.copies)
    is_main = first.place == "main"
    state: MessageState = "in_flight" if first.place == "handed" else "visible"
    return Situation(
        protocol="gomq",
        queue=record.ref.name,
        now_ms=record.now_ms,
        state=state,
        line=QueueLine(ahead=first.index),
        consumers=record.consumers if is_main else None,
        workers=record.peers if is_main else None,
        backlog_held_until_ms=record.held_until_ms if is_main else None,
        full_peer=_full_peer(record) if is_main else "",
        unsettled=record.state.is_unsettled and is_main,
        holder=None
        if is_main
        else Holder(
            name=first.list.holder or "",
            silent_s=first.silent_s,
            takeover_s=PEER_TIMEOUT_S,
        ),
    )


def _slowest(copies: Sequence[CopyLocation]) -> CopyLocation:
    """Return the copy that waits for the peer that is silent for longest."""
    return max(copies, key=lambda each: (each.place == "dedicated", each.silent_s or 0))


def _full_peer(record: ElementInfo) -> str:
    return record.state.full_list.removeprefix(keys.lists(record.ref.name))


def _row(record: ElementInfo, it: Situation) -> MessageRow:
    if record.element is None:
        published_ms = ElementExcerpt(record.id, "", b"", 0).published_ms
        return MessageRow(
            queue=str(record.ref),
            id=record.id,
            state=it.state,
            added_ms=published_ms,
            ended_ms=it.ended_ms,
        )
    return element_row(record.ref, it.state, _slowest(record.copies).list, record.element)


def _facts(record: ElementInfo, it: Situation) -> Iterator[tuple[str, str]]:
    yield "State", {"in_flight": "in flight"}.get(it.state, it.state)
    published_ms = record.element.published_ms if record.element else None
    if published_ms is not None:
        yield "Published", f"{ago(published_ms, it.now_ms)}, {moment(published_ms)}"
    if record.element is not None:
        yield "Body", size(record.element.size)
    for copy in record.copies:
        seen = "" if copy.silent_s is None else f", which observed {duration(copy.silent_s)} ago"
        yield "Copy", _PLACES[copy.place].format(copy.list.holder) + seen
    yield "Consumers", str(record.consumers)
    yield "Peers", str(record.peers)


def _from_state(record: ElementInfo) -> list[TimelineEntry]:
    element = record.element
    is_known = any(each.text(b"e") == "sent" for each in record.journal.entries)
    if element is None or element.published_ms is None or is_known:
        return []
    at_ms = element.published_ms
    return [TimelineEntry(at_ms=at_ms, kind="added", text="Published", source="state")]


def _note(record: ElementInfo) -> str:
    if record.journal.first_ms is None:
        note = "The key has no journal, so who received it and when is not recorded."
    else:
        note = gaps(record.journal, "entries of the journal", None)
    partly = "" if record.is_search_complete else " Not all copies were looked for."
    return f"{note}{partly}".strip()


def _steps(record: ElementInfo) -> Iterator[tuple[str, Sequence[str | int]]]:
    key = record.ref.name
    for copy in record.copies:
        if copy.place == "handed":
            name = keys.handed(copy.list.consumer, copy.list.peer)
            yield "the batch that is not acknowledged, as MessagePack", ("GET", name)
        else:
            index = copy.index
            shows = f"the message, {count(index, 'other')} before it"
            yield shows, ("LRANGE", copy.list.name(key), index, index)
        if copy.list != MAIN:
            name = keys.last_action(copy.list.peer)
            yield f"when {copy.list.peer} observed last, in seconds", ("GET", name)
    yield "how many wait in the main queue", ("LLEN", keys.queue(key))
    yield "who is subscribed", ("SMEMBERS", keys.consumers(key))
    yield "until when the backlog is held, if it is", ("ZSCORE", keys.HELD, key)
    yield "what stops the key: leaving, full", ("HMGET", keys.tally(key), "leaving", "full")
