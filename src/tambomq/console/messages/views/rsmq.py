"""The page of one RSMQ message, made of what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from tambomq.bulk.excerpts import EntryExcerpt
from tambomq.console.messages.body import decode_body
from tambomq.console.messages.commands import explain_command, redis_commands
from tambomq.console.messages.explain import explain
from tambomq.console.messages.lists.rsmq import row_of
from tambomq.console.messages.model import MessageDetail, MessageRow, MessageState, TimelineEntry
from tambomq.console.messages.phrases import ago, moment, ordinal, size
from tambomq.console.messages.reads.history import gaps
from tambomq.console.messages.reads.rsmq import MessageRecord
from tambomq.console.messages.situation import Holder, QueueLine, Situation
from tambomq.console.messages.timeline import Kind, journal_entries, merged, time_of
from tambomq.rsmq.bulk.excerpts import MessageExcerpt
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys

_ACTIONS: dict[MessageState, list[str]] = {
    "visible": ["edit", "delete"],
    "in_flight": ["delete"],
    "delayed": ["run_now", "edit", "delete"],
    "dead": ["replay", "edit", "delete"],
    "done": [],
}


def message_detail(record: MessageRecord) -> MessageDetail:
    """Return the page of a message."""
    it, message = message_situation(record), record.message
    body = None
    if message is not None and message.size >= 0:
        body = decode_body(message.head, size=message.size)
    return MessageDetail(
        at_ms=record.now_ms,
        row=_row(record, it),
        why=explain(it),
        body=body,
        facts=list(_facts(record, it)),
        headers=list(_headers(message)),
        timeline=merged(_from_state(record, it), journal_entries(record.journal.entries)),
        timeline_note=_note(record),
        commands=[*redis_commands(_steps(record, it)), *explain_command(record.ref, record.id)],
        actions=_ACTIONS[it.state],
    )


def message_situation(record: MessageRecord) -> Situation:
    """Return what can hold a message back."""
    message, end = record.message, _last_end(record.journal.entries)
    state = _state(record)
    ended: Literal["", "deleted", "dead", "gone"] = ""
    if message is None:
        ended = "gone" if end is None else "dead" if end.text(b"e") == "dead" else "deleted"
    ended_ms = None if end is None or message is not None else time_of(end)
    if message is not None and record.is_dead and not message.rc:
        ended_ms = message.visible_at_ms
    return Situation(
        protocol="rsmq",
        queue=record.ref.name,
        now_ms=record.now_ms,
        state=state,
        # A dead letter keeps no receive count of its queue.
        runs=message.rc if message is not None and not record.is_dead else 0,
        due_ms=_due_ms(message, state),
        line=QueueLine(
            ahead=message.rank if message is not None else None, waiting=_visible(record)
        ),
        holder=_holder(record, state),
        reason=_reason(record, end),
        ended=ended,
        ended_ms=ended_ms,
    )


def _state(record: MessageRecord) -> MessageState:
    message = record.message
    if message is None:
        return "done"
    if record.is_dead:
        return "dead"
    if message.visible_at_ms <= record.now_ms:
        return "visible"
    return "in_flight" if message.rc else "delayed"


def _due_ms(message: MessageExcerpt | None, state: MessageState) -> int | None:
    return message.visible_at_ms if message is not None and state != "dead" else None


def _holder(record: MessageRecord, state: MessageState) -> Holder | None:
    if state != "in_flight" or record.message is None:
        return None
    until_ms = record.message.visible_at_ms
    if record.lease is None:
        return Holder(until_ms=until_ms)
    lease = record.lease
    return Holder(name=lease.holder, until_ms=until_ms, lease=lease.name, lease_state=lease.state)


def _visible(record: MessageRecord) -> int | None:
    found = record.attributes
    return None if found is None else max(0, found.msgs - found.hiddenmsgs)


def _last_end(entries: Sequence[EntryExcerpt]) -> EntryExcerpt | None:
    ends = [each for each in entries if each.text(b"e") in ("deleted", "dead")]
    return ends[-1] if ends else None


def _reason(record: MessageRecord, end: EntryExcerpt | None) -> str:
    if record.message is not None:
        return record.message.reason or ""
    return "" if end is None else end.text(b"r")


# --- what the page shows ---


def _row(record: MessageRecord, it: Situation) -> MessageRow:
    if record.message is None:
        return MessageRow(
            queue=str(record.ref),
            id=record.id,
            state="done",
            added_ms=record.added_ms,
            ended_ms=it.ended_ms,
        )
    return row_of(record.ref, it.state, record.message)


def _facts(record: MessageRecord, it: Situation) -> Iterator[tuple[str, str]]:
    message = record.message
    yield "State", {"in_flight": "in flight"}.get(it.state, it.state)
    # A dead-letter queue does not say how often the message was received before.
    if message is not None and (message.rc or not record.is_dead):
        yield "Received", f"{message.rc} times" if message.rc != 1 else "once"
        if message.fr_ms:
            yield "First received", _when(message.fr_ms, it.now_ms)
        if message.received_ms is not None:
            yield "Last received", _when(message.received_ms, it.now_ms)
        if it.state in ("in_flight", "delayed"):
            yield "Visible", _when(message.visible_at_ms, it.now_ms)
    if record.added_ms is not None:
        yield "Sent", _when(record.added_ms, it.now_ms)
    if it.ended_ms is not None:
        yield "Died" if it.state == "dead" else "Ended", _when(it.ended_ms, it.now_ms)
    if message is not None and message.size >= 0:
        yield "Body", size(message.size)
    if record.attributes is not None:
        yield "Visibility timeout", f"{record.attributes.vt:g} s"
    if record.lease is not None:
        yield "Spark lease", record.lease.name


def _when(at_ms: int, now_ms: int) -> str:
    return f"{ago(at_ms, now_ms)}, {moment(at_ms)}"


def _headers(message: MessageExcerpt | None) -> Iterator[tuple[str, str]]:
    if message is None:
        return
    yield "rc", str(message.rc)
    if message.fr_ms:
        yield "fr", str(message.fr_ms)
    if message.reason is not None:
        yield "reason", message.reason
    if message.traceback is not None:
        yield "traceback", message.traceback


def _from_state(record: MessageRecord, it: Situation) -> list[TimelineEntry]:
    message, events = record.message, {each.text(b"e") for each in record.journal.entries}
    found: list[TimelineEntry] = []

    def add(at_ms: int | None, kind: Kind, text: str) -> None:
        if at_ms:
            found.append(TimelineEntry(at_ms=at_ms, kind=kind, text=text, source="state"))

    if "sent" not in events:
        add(record.added_ms, "added", "Sent")
    if message is not None and "received" not in events:
        add(message.fr_ms, "started", "Received by a consumer, for the first time")
        if message.rc > 1:
            text = f"Received by a consumer, for the {ordinal(message.rc)} time"
            add(message.received_ms, "started", text)
    if it.state == "dead" and "dead" not in events:
        add(it.ended_ms, "dead", f"Became a dead letter: {it.reason}")
    if it.state in ("in_flight", "delayed") and message is not None:
        text = "Visible again, unless it is deleted" if message.rc else "Becomes visible"
        add(message.visible_at_ms, "future", text)
    return found


def _note(record: MessageRecord) -> str:
    if record.journal.first_ms is None:
        return "The queue has no journal, so only what RSMQ itself keeps is shown."
    return gaps(record.journal, "entries of the journal", record.added_ms)


def _steps(record: MessageRecord, it: Situation) -> Iterator[tuple[str, Sequence[str | int]]]:
    keys = Keys(record.ns)
    queue = record.ref.name + DEAD_SUFFIX if record.is_dead else record.ref.name
    messages, data = keys.of(queue)
    id = record.id
    if "\\" in id:
        return
    if record.message is not None:
        visible = moment(record.message.visible_at_ms)
        shows = "when it died" if it.state == "dead" else f"when it is visible: {visible}"
        yield shows, ("ZSCORE", messages, id)
        yield "how many are or become visible before it", ("ZRANK", messages, id)
        yield "its body", ("HGET", data, id)
        fields = (f"{id}:rc", f"{id}:fr", *((f"{id}:why",) if record.is_dead else ()))
        yield "receive count, first receive, reason", ("HMGET", data, *fields)
    yield "the queue's settings", ("HMGET", data, "vt", "delay", "maxsize")
