"""The page of one KqueueMsgQ message: what the queue's journal recorded of it."""

from __future__ import annotations

from tambomq.bulk.excerpts import NOTHING, EntryExcerpt
from tambomq.console.messages.body import decode_body
from tambomq.console.messages.commands import explain_command, redis_commands
from tambomq.console.messages.explain import explain
from tambomq.console.messages.lists.journal import journal_row
from tambomq.console.messages.lists.kqueue import STORES_NOTHING
from tambomq.console.messages.model import MessageDetail
from tambomq.console.messages.phrases import ago, moment, size
from tambomq.console.messages.situation import Situation
from tambomq.console.messages.timeline import journal_entries, time_of
from tambomq.console.model import QueueRef
from tambomq.journal import keys as fields
from tambomq.journal.keys import JournalKeys
from tambomq.journal.wire import number


def entry_detail(ref: QueueRef, entry: EntryExcerpt, now_ms: int) -> MessageDetail:
    """Return the page of a message; its id is that of its journal entry."""
    body, at_ms = entry.fields.get(fields.BODY, NOTHING), time_of(entry)
    receivers = number(entry.fields.get(fields.TARGETS, NOTHING).head)
    it = Situation(
        protocol="kqueue",
        queue=ref.name,
        now_ms=now_ms,
        state="done",
        ended="delivered",
        ended_ms=at_ms,
        receivers=receivers,
    )
    journal = JournalKeys("kqueue", ref.name).journal
    steps = (("the message", ("XRANGE", journal, entry.id, entry.id)),)
    return MessageDetail(
        at_ms=now_ms,
        row=journal_row(ref, entry),
        why=explain(it),
        body=decode_body(body.head, size=body.size),
        facts=[
            ("State", "done"),
            ("Sent", f"{ago(at_ms, now_ms)}, {moment(at_ms)}"),
            ("Consumers", "not recorded" if receivers is None else str(receivers)),
            ("Body", size(body.size)),
        ],
        timeline=journal_entries([entry]),
        timeline_note=STORES_NOTHING,
        commands=[*redis_commands(steps), *explain_command(ref, entry.id)],
    )
