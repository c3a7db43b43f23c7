"""The page of one ChasquiMQ job, made of what was read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops.jobs import DelayedMember, StreamEntry
from tambomq.chasqui.wire.envelope import by_name
from tambomq.console.messages.body import decode_body, preview
from tambomq.console.messages.commands import explain_command, redis_commands
from tambomq.console.messages.explain import explain
from tambomq.console.messages.model import (
    MessageDetail,
    MessageRow,
    MessageState,
    TimelineEntry,
)
from tambomq.console.messages.phrases import ago, count, moment, size
from tambomq.console.messages.reads.chasqui import (
    JobRecord,
)
from tambomq.console.messages.reads.history import gaps
from tambomq.console.messages.situation import Situation
from tambomq.console.messages.timeline import event_entries, journal_entries, merged
from tambomq.console.messages.views.chasqui_situation import job_situation

_ACTIONS: dict[MessageState, list[str]] = {
    "visible": ["cancel", "delete"],
    "in_flight": ["cancel"],
    "delayed": ["run_now", "edit", "cancel", "delete"],
    "dead": ["replay", "edit", "delete"],
    "done": [],
}


def job_detail(record: JobRecord) -> MessageDetail:
    """Return the page of a job."""
    situation = job_situation(record)
    payload = record.envelope.payload if record.envelope else record.stored
    events = event_entries(record.events.entries)
    journal = journal_entries(record.journal.entries)
    return MessageDetail(
        at_ms=record.now_ms,
        row=_row(record, situation, payload),
        why=explain(situation),
        body=None if record.found is None else decode_body(payload, prefer="msgpack"),
        facts=list(_facts(record, situation)),
        headers=list(_headers(record)),
        timeline=merged(_from_state(record, situation), journal, events),
        timeline_note=_note(record),
        commands=[*redis_commands(_steps(record)), *explain_command(record.ref, record.id)],
        logs=record.logs,
        progress=record.progress,
        # Only a job with an envelope can be found by its id.
        actions=_ACTIONS[situation.state] if record.envelope else [],
    )


def _row(record: JobRecord, situation: Situation, payload: bytes) -> MessageRow:
    is_dead = situation.state == "dead"
    error = ": ".join(filter(None, (situation.reason, situation.error))) if is_dead else None
    done_name = next((e.text(b"n") for e in record.events.entries if e.text(b"n")), "")
    return MessageRow(
        queue=str(record.ref),
        id=record.id,
        name=record.name or done_name or None,
        state=situation.state,
        attempt=situation.runs,
        max_attempts=situation.max_runs,
        added_ms=record.added_ms,
        due_ms=situation.due_ms,
        died_ms=situation.ended_ms if is_dead else None,
        ended_ms=situation.ended_ms if situation.state == "done" else None,
        holder=record.pending.consumer if situation.holder and record.pending else None,
        size_bytes=None if record.found is None else len(payload),
        error=error,
        preview=preview(payload, prefer="msgpack"),
        letter_id=record.found.dlq_id if isinstance(record.found, DeadLetter) else None,
    )


def _facts(record: JobRecord, it: Situation) -> Iterator[tuple[str, str]]:
    yield "State", {"in_flight": "in flight", "visible": "waiting"}.get(it.state, it.state)
    if record.envelope is not None:
        yield "Runs", f"{it.runs} of {it.max_runs}" if it.max_runs else str(it.runs)
    if it.due_ms is not None:
        yield "Due", f"{ago(it.due_ms, it.now_ms)}, {moment(it.due_ms)}"
    if record.added_ms is not None:
        yield "Added", f"{ago(record.added_ms, it.now_ms)}, {moment(record.added_ms)}"
    if it.ended_ms is not None:
        label = "Died" if it.state == "dead" else "Ended"
        yield label, f"{ago(it.ended_ms, it.now_ms)}, {moment(it.ended_ms)}"
    if record.found is not None:
        payload = record.envelope.payload if record.envelope else record.stored
        yield "Body", size(len(payload))
    if isinstance(record.found, StreamEntry):
        yield "Stream entry", record.found.id
    if isinstance(record.found, DeadLetter):
        yield "Dead letter", record.found.dlq_id
    if record.pending is not None:
        yield "Deliveries", str(record.pending.deliveries)
    if record.result_size:
        whole = record.result if len(record.result) == record.result_size else b""
        yield "Result", preview(whole, size=record.result_size, prefer="msgpack")


def _headers(record: JobRecord) -> Iterator[tuple[str, str]]:
    if record.name:
        yield "name", record.name
    retry = record.envelope.retry if record.envelope else None
    if retry is not None and retry.max_attempts is not None:
        yield "attempts", str(retry.max_attempts)
    if retry is not None and retry.backoff is not None:
        backoff = retry.backoff
        yield "backoff", f"{backoff.kind}, {backoff.delay_ms} ms"
    if isinstance(record.found, DeadLetter):
        letter = record.found
        for name in ("reason", "error_type", "detail", "source_id", "traceback"):
            if value := letter[name]:
                yield name, value
    if isinstance(record.found, StreamEntry):
        for field, value in by_name(record.found.fields).items():
            if field not in (b"d", b"n"):
                yield field.decode("utf-8", "replace"), value[:4096].decode("utf-8", "replace")


def _from_state(record: JobRecord, it: Situation) -> list[TimelineEntry]:
    found = []
    written = {each.text(b"e") for each in record.events.entries}
    is_known = "delayed" in written or any(e.text(b"e") == "sent" for e in record.journal.entries)
    if record.added_ms is not None and not is_known:
        found.append(
            TimelineEntry(at_ms=record.added_ms, kind="added", text="Added", source="state")
        )
    if it.due_ms is not None and it.due_ms > it.now_ms:
        text = f"Run {it.runs + 1} is due"
        found.append(TimelineEntry(at_ms=it.due_ms, kind="future", text=text, source="state"))
    return found


def _note(record: JobRecord) -> str:
    if record.events.first_ms is None:
        return "The queue has no events: its workers and producers write none, or none was kept."
    return " ".join(
        filter(
            None,
            (
                gaps(record.events, "events", record.added_ms),
                gaps(record.journal, "entries of the journal", record.added_ms),
            ),
        )
    )


def _steps(record: JobRecord) -> Iterator[tuple[str, Sequence[str | int]]]:
    keys, found = Keys(record.ref.name), record.found
    if isinstance(found, DelayedMember):
        shows = f"not before this time: {moment(found.due_at_ms)}"
        due = found.due_at_ms
        yield shows, ("ZRANGE", keys.delayed, due, due, "BYSCORE", "WITHSCORES")
    if isinstance(found, StreamEntry):
        yield "the job", ("XRANGE", keys.stream, found.id, found.id)
        shows = "its worker, idle time and deliveries" if record.pending else "no worker has it"
        yield shows, ("XPENDING", keys.stream, GROUP, found.id, found.id, 1)
    if isinstance(found, DeadLetter):
        yield f"the dead letter: {found.reason}", ("XRANGE", keys.dlq, found.dlq_id, found.dlq_id)
    yield f"{count(record.length, 'job')} in the stream", ("XLEN", keys.stream)
    yield "how far workers have read", ("XINFO", "GROUPS", keys.stream)
    yield "who reads, and since when they are idle", ("XINFO", "CONSUMERS", keys.stream, GROUP)
    yield (
        f"{int(record.paused)}: {'paused' if record.paused else 'not paused'}",
        ("EXISTS", keys.paused),
    )
    if record.limiter is not None:
        yield f"{record.limiter.started} started in this window", ("HGETALL", keys.limiter)
    if isinstance(found, DelayedMember):
        yield "who puts due jobs in line", ("GET", keys.promoter_lock)
    yield "the newest events", ("XREVRANGE", keys.events, "+", "-", "COUNT", 100)
