"""What can hold a ChasquiMQ job back, from what was read of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tambomq.bulk.excerpts import EntryExcerpt
from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import RETURNED
from tambomq.chasqui.ops.ended_jobs import ENDED
from tambomq.chasqui.ops.jobs import DelayedMember
from tambomq.console.messages.lists.chasqui import entry_ms
from tambomq.console.messages.model import MessageState
from tambomq.console.messages.reads.chasqui import (
    TAKEOVER_S,
    JobRecord,
    lease_of,
    recent_runs,
    workers_of,
)
from tambomq.console.messages.reads.history import gaps
from tambomq.console.messages.situation import Holder, QueueLine, Situation
from tambomq.console.messages.timeline import time_of


def job_situation(record: JobRecord) -> Situation:
    """Return what can hold a job back."""
    end = _last_end(record.events.entries)
    state = _state(record)
    alive, silent = workers_of(record)
    starts_per_s, failing = recent_runs(record.recent, record.now_ms)
    limiter = record.limiter
    attempt = record.envelope.attempt if record.envelope else 0
    retry = record.envelope.retry if record.envelope else None
    # Workers do not read while their queue is paused, so all of them look silent.
    workers = None if record.paused and not alive else len(alive)
    is_read_ahead = state == "in_flight" and _is_read_ahead(record, attempt + 1)
    return Situation(
        protocol="chasqui",
        queue=record.ref.name,
        now_ms=record.now_ms,
        state=state,
        runs=_runs(record, state, attempt) - is_read_ahead,
        max_runs=retry.max_attempts if retry else None,
        is_read_ahead=is_read_ahead,
        due_ms=record.found.due_at_ms if isinstance(record.found, DelayedMember) else None,
        error=_error(record),
        line=_line(record, starts_per_s),
        workers=workers,
        silent_workers=len(silent),
        held=sum(each.pending for each in alive),
        paused=record.paused,
        promoter=record.promoter,
        limit_started=limiter.started if limiter else None,
        limit_ends_ms=limiter.ends_ms if limiter else None,
        limited_until_ms=_limited_until(record.recent),
        holder=_holder(record),
        reason=_reason(record, end),
        ended=_ended(record, end),
        ended_ms=_ended_ms(record, end),
        duration_s=_duration_s(end),
        failing=failing,
    )


def _line(record: JobRecord, starts_per_s: float | None) -> QueueLine:
    ahead, is_exact = record.ahead or (None, True)
    pending = sum(each.pending for each in record.consumers if each.name != RETURNED)
    waiting = max(0, record.length - pending)
    return QueueLine(ahead=ahead, is_exact=is_exact, waiting=waiting, per_s=starts_per_s)


def _state(record: JobRecord) -> MessageState:
    if record.place == "stream":
        is_held = record.pending is not None and record.pending.consumer != RETURNED
        return "in_flight" if is_held else "visible"
    states: dict[str, MessageState] = {"delayed": "delayed", "dead": "dead", "gone": "done"}
    return states[record.place]


def _runs(record: JobRecord, state: MessageState, attempt: int) -> int:
    ran = isinstance(record.found, DeadLetter) and bool(record.found.error)
    return attempt + (state == "in_flight" or ran)


def _is_read_ahead(record: JobRecord, run: int) -> bool:
    """Whether no event says that *run* began, where workers write one and all were looked at."""
    is_known = not gaps(record.events, "events", record.added_ms)
    begins = [each for each in record.events.entries if each.text(b"e") == "active"]
    if not is_known or not any(each.text(b"e") == "active" for each in record.recent):
        return False
    return all(each.text(b"attempt") != str(run) for each in begins)


def _holder(record: JobRecord) -> Holder | None:
    if record.pending is None or record.pending.consumer == RETURNED:
        return None
    if (lease := lease_of(record)) is not None:
        until_ms = lease.until_ms or None
        return Holder(
            name=lease.holder, until_ms=until_ms, lease=lease.name, lease_state=lease.state
        )
    silent_s = record.pending.idle_ms / 1000
    return Holder(name=record.pending.consumer, silent_s=silent_s, takeover_s=TAKEOVER_S)


def _error(record: JobRecord) -> str:
    if isinstance(record.found, DeadLetter):
        return record.found.error
    failed = [each for each in record.events.entries if each.text(b"e") == "failed"]
    return failed[-1].text(b"reason") if failed else ""


def _last_end(events: Sequence[EntryExcerpt]) -> EntryExcerpt | None:
    ends = [each for each in events if each.text(b"e") in ENDED]
    return ends[-1] if ends else None


def _reason(record: JobRecord, end: EntryExcerpt | None) -> str:
    if isinstance(record.found, DeadLetter):
        return record.found.reason
    return end.text(b"reason") if end is not None and record.place == "gone" else ""


def _ended(
    record: JobRecord, end: EntryExcerpt | None
) -> Literal["", "completed", "cancelled", "dead", "gone"]:
    if record.place != "gone":
        return ""
    match end.text(b"e") if end is not None else "":
        case "cancelled":
            return "cancelled"
        case "dlq":
            return "dead"
        case "completed":
            return "completed"
    return "completed" if record.result_size else "gone"


def _ended_ms(record: JobRecord, end: EntryExcerpt | None) -> int | None:
    if isinstance(record.found, DeadLetter):
        return entry_ms(record.found.dlq_id)
    return time_of(end) if end is not None and record.place == "gone" else None


def _duration_s(end: EntryExcerpt | None) -> float | None:
    text = "" if end is None else end.text(b"duration_us")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else None


def _limited_until(recent: Sequence[EntryExcerpt]) -> int | None:
    """Return until when a worker said it waits for the limiter."""
    for event in recent:
        wait = event.text(b"wait_ms")
        if event.text(b"e") == "rate-limited" and wait.isascii() and wait.isdigit():
            return time_of(event) + int(wait)
    return None
