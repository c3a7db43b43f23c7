"""Reads one ChasquiMQ job: its place, its contents, its history, and what can hold it back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from tambomq.bulk import excerpts
from tambomq.bulk.excerpts import EntryExcerpt, EntryPage
from tambomq.bulk.lease_model import LeaseInfo
from tambomq.chasqui.bulk import inspect, scan
from tambomq.chasqui.bulk.inspect import ConsumerInfo
from tambomq.chasqui.bulk.lease_admin import ChasquiLeaseAdminOps
from tambomq.chasqui.job import DeadLetter, Envelope
from tambomq.chasqui.keys import GROUP, RETURNED, Keys, lessee
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops import jobs, reports
from tambomq.chasqui.ops.jobs import DelayedMember, Found, StreamEntry
from tambomq.chasqui.options import CLAIM_IDLE_MS
from tambomq.chasqui.wire.envelope import by_name, decode_envelope, decode_member
from tambomq.chasqui.wire.records import read_dead_letter
from tambomq.console.messages.lists.chasqui import PendingEntry, pending_page
from tambomq.console.messages.lists.journal import ENTRY_ID
from tambomq.console.messages.reads.history import HistoryEntries, history_of
from tambomq.console.model import QueueRef
from tambomq.errors import MessageNotFound, RemoteProtocolError, TamboError
from tambomq.ids import ulid_ms
from tambomq.journal.keys import JournalKeys
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

SEARCH_S: Final = 5.0
"""How long a job is searched for: only delayed jobs with a chosen id have an index."""
LOG_LINES: Final = 200
RESULT_BYTES: Final = 16 * 1024
ALIVE_MS: Final = 30_000
"""A worker reads, or renews what it has, at least every 20 s."""
RECENT_S: Final = 60.0
"""Rates are those of the last minute."""


class JobRecord(msgspec.Struct, kw_only=True):
    """All that was read of one job."""

    ref: QueueRef
    id: str
    now_ms: int
    found: Found | None
    name: str = ""
    envelope: Envelope | None = None
    stored: bytes = b""
    """The envelope, or the bytes in its place."""
    pending: PendingEntry | None = None
    consumers: list[ConsumerInfo] = []
    leases: list[LeaseInfo] = []
    paused: bool = False
    promoter: str = ""
    limiter: inspect.LimiterState | None = None
    length: int = 0
    ahead: tuple[int, bool] | None = None
    progress: Any = None
    logs: list[str] = []
    result_size: int = 0
    result: bytes = b""
    recent: list[EntryExcerpt] = []
    """Events of the queue, newest first."""
    events: HistoryEntries
    journal: HistoryEntries

    @property
    def added_ms(self) -> int | None:
        """When it was added, by its envelope or its id."""
        made = self.envelope.created_at_ms if self.envelope else 0
        return made or ulid_ms(self.id)

    @property
    def place(self) -> Literal["delayed", "stream", "dead", "gone"]:
        """Which of the queue's keys it is in."""
        match self.found:
            case DelayedMember():
                return "delayed"
            case StreamEntry():
                return "stream"
            case DeadLetter():
                return "dead"
        return "gone"


async def read_job(store: AsyncStore, ref: QueueRef, id: str) -> JobRecord:
    """Read a job; raise `MessageNotFound` if nothing is known of it."""
    keys = Keys(ref.name)
    found = await _find(store, keys, id)
    name, stored, envelope = _contents(found)
    added_ms = (envelope.created_at_ms if envelope else 0) or ulid_ms(id)
    events = await history_of(store, keys.events, id, added_ms)
    journal = await history_of(store, JournalKeys("chasqui", ref.name).journal, id, added_ms)
    around = await _around(store, keys, id)
    if found is None and not events.entries and not journal.entries and not around["result_size"]:
        raise MessageNotFound(ref.name, id)
    pending, ahead = None, None
    if isinstance(found, StreamEntry):
        pending = next(iter(await pending_page(store, keys, found.id, found.id)), None)
        if pending is None:
            after = around.pop("last_delivered") or "0-0"
            ahead = await store.follow(inspect.count_ahead(keys, after, found.id))
        elif pending.consumer == RETURNED:
            ahead = (0, True)
    around.pop("last_delivered", None)
    return JobRecord(
        ref=ref,
        id=id,
        found=found,
        name=name,
        stored=stored,
        envelope=envelope,
        pending=pending,
        ahead=ahead,
        events=events,
        journal=journal,
        **around,
    )


async def _find(store: AsyncStore, keys: Keys, id: str) -> Found | None:
    """Find a job by its id; an entry that is no job is found by the entry's id."""
    if ENTRY_ID.fullmatch(id):
        calls = [scan.entry(stream, id.encode()) for stream in (keys.stream, keys.dlq)]
        waiting, dead = await store.run_all(calls)
        if waiting[1] is not None:
            return StreamEntry(id, waiting[1])
        if dead[1] is not None:
            return read_dead_letter(*dead)
    try:
        async with asyncio.timeout(SEARCH_S):
            return await store.follow(jobs.find(keys, id))
    except TimeoutError:
        raise MessageNotFound(
            keys.queue, id, f"it was not found within {SEARCH_S:g} s; the queue is large"
        ) from None


def _contents(found: Found | None) -> tuple[str, bytes, Envelope | None]:
    """Return the name, the stored bytes, and the envelope if they are one."""
    name, stored = "", b""
    match found:
        case DelayedMember(member=member):
            stored = member
            with suppress(RemoteProtocolError):
                name, stored = decode_member(member)
        case StreamEntry(fields=fields):
            values = by_name(fields)
            name, stored = values.get(b"n", b"").decode("utf-8", "replace"), values.get(b"d", b"")
        case DeadLetter():
            name, stored = found.name, found.payload
    try:
        return name, stored, decode_envelope(stored)
    except RemoteProtocolError:
        return name, stored, None


async def _around(store: AsyncStore, keys: Keys, id: str) -> dict[str, Any]:
    """Read what surrounds a job, in one round trip; what cannot be read keeps its default."""
    calls: dict[str, tuple[Call[Any], Any]] = {
        "now_ms": (scan.now(), 0),
        "consumers": (inspect.consumers(keys), []),
        "last_delivered": (inspect.last_delivered(keys), None),
        "paused": (inspect.is_paused(keys), False),
        "promoter": (inspect.promoter(keys), ""),
        "limiter": (inspect.limiter(keys), None),
        "length": (scan.length(keys.stream), 0),
        "progress": (reports.progress(keys, id), None),
        "logs": (event_ops.log_lines(keys, id, LOG_LINES), []),
        "result_size": (inspect.result_size(keys, id), 0),
        "result": (inspect.result_head(keys, id, RESULT_BYTES), b""),
        "recent": (excerpts.entries(keys.events, newest_first=True, ends=256), None),
    }
    outcomes = await store.outcomes([call for call, _ in calls.values()])
    found = {
        name: default if isinstance(outcome, TamboError) else outcome
        for (name, (_, default)), outcome in zip(calls.items(), outcomes, strict=True)
    }
    page: EntryPage | None = found["recent"]
    found["recent"] = page.entries if page else []
    found["leases"] = []
    with suppress(TamboError):
        found["leases"] = await store.follow(ChasquiLeaseAdminOps(GROUP).list_leases(keys.queue))
    return found


def lease_of(record: JobRecord) -> LeaseInfo | None:
    """Return the Spark lease that has the job; `None` if none has."""
    consumer = record.pending.consumer if record.pending else None
    return next((each for each in record.leases if lessee(each.name) == consumer), None)


def workers_of(record: JobRecord) -> tuple[list[ConsumerInfo], list[ConsumerInfo]]:
    """Return the workers that are alive, and those that are silent; Spark leases are neither."""
    leases = {lessee(each.name) for each in record.leases}
    workers = [
        each for each in record.consumers if each.name != RETURNED and each.name not in leases
    ]
    alive = [each for each in workers if each.idle_ms <= ALIVE_MS]
    return alive, [each for each in workers if each.idle_ms > ALIVE_MS]


TAKEOVER_S: Final = CLAIM_IDLE_MS / 1000


def recent_runs(events: Sequence[EntryExcerpt], now_ms: int) -> tuple[float | None, float | None]:
    """Return starts per second of the last minute, and the share of runs that failed.

    *events* are the newest of a queue; `None` if there are too few to say.
    """
    times = [int(event.id.partition("-")[0]) for event in events]
    if not times:
        return None, None
    span_s = min(RECENT_S, max(0.001, (now_ms - times[-1]) / 1000))
    names = [
        event.text(b"e")
        for event, at_ms in zip(events, times, strict=True)
        if now_ms - at_ms <= RECENT_S * 1000
    ]
    ended = names.count("completed") + names.count("failed")
    return names.count("active") / span_s, names.count("failed") / ended if ended else None
