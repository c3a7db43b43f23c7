"""The page of one queue: its settings, its charts, and who works on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops import events as event_ops
from tambomq.console.model import QueueDetail, QueueRef, QueueRow
from tambomq.console.read.history import QueueHistory
from tambomq.console.read.latencies import QueueLatencies
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.schedules import read_schedules
from tambomq.console.read.workers import WorkerDirectory
from tambomq.console.words import bytes_text, count_text, duration_text
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.rsmq.keys import DEAD_SUFFIX
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.model import QueueAttributes, QueueBounds
from tambomq.rsmq.ops import queues as rsmq_ops
from tambomq.store.aio import AsyncStore

EVENT_PAGES: Final = 4
EVENTS_OF_PAGE: Final = 500
"""A page of events blocks Redis for less than a millisecond."""
MAX_LATENCIES: Final = 100
"""Queues whose percentiles are kept: those whose pages were looked at last."""

Pairs = list[tuple[str, str]]


class QueueDetails:
    """Reads what only the page of one queue shows."""

    def __init__(self, store: AsyncStore, rsmq_keys: RsmqKeys, workers: WorkerDirectory) -> None:
        self._store, self._rsmq_keys, self._workers = store, rsmq_keys, workers
        self._latencies: dict[QueueRef, QueueLatencies] = {}

    async def read(
        self, ref: QueueRef, row: QueueRow, sample: QueueSample, past: QueueHistory, at_ms: int
    ) -> QueueDetail:
        """Return the page of a queue. Raises `StoreUnavailable`."""
        states: dict[str, int | None] = {
            "visible": row.visible,
            "in_flight": row.in_flight,
            "delayed": row.delayed,
            "dead": row.dead,
        }
        detail = QueueDetail(
            at_ms=at_ms,
            row=row,
            settings=await self._settings(ref, sample),
            throughput=past.series(at_ms),
            workers=[] if ref.protocol == "kqueue" else await self._workers.workers([ref], at_ms),
            states={name: count for name, count in states.items() if count is not None},
            actions=_ACTIONS[ref.protocol](row),
        )
        return detail if ref.protocol != "chasqui" else await self._of_jobs(ref, detail, at_ms)

    async def _of_jobs(self, ref: QueueRef, detail: QueueDetail, at_ms: int) -> QueueDetail:
        (leaders, schedules), events = await asyncio.gather(
            self._led(ref, at_ms), self._last_events(ref.name)
        )
        latencies = self._latencies.pop(ref, None) or QueueLatencies()
        latencies.record(events)
        self._latencies[ref] = latencies
        if len(self._latencies) > MAX_LATENCIES:
            del self._latencies[next(iter(self._latencies))]
        return msgspec.structs.replace(
            detail,
            run_times=latencies.run_times(at_ms),
            wait_times=latencies.wait_times(at_ms),
            leaders=leaders,
            schedules=schedules,
            states=detail.states | {"done": None},
        )

    async def _led(self, ref: QueueRef, at_ms: int) -> Any:
        leaders = await self._workers.leaders([ref.name])
        schedules = await read_schedules(self._store, [ref.name], at_ms)
        return (leaders[0] if leaders else None), schedules

    async def _last_events(self, name: str) -> list[QueueEvent]:
        """Return the newest events, a bounded number; none if they cannot be read."""
        events: list[QueueEvent] = []
        before = "+"
        for _ in range(EVENT_PAGES):
            call = event_ops.read_back(ChasquiKeys(name), before, EVENTS_OF_PAGE)
            (page,) = await self._store.outcomes([call])
            if isinstance(page, StoreUnavailable):
                raise page
            if isinstance(page, TamboError):
                break
            events += page
            if len(page) < EVENTS_OF_PAGE:
                break
            before = f"({page[-1].event_id}"
        return events

    async def _settings(self, ref: QueueRef, sample: QueueSample) -> Pairs:
        if ref.protocol != "rsmq":
            return _SETTINGS[ref.protocol](sample)
        call = rsmq_ops.attributes(self._rsmq_keys, ref.name)
        (found,) = await self._store.outcomes([call])
        if isinstance(found, StoreUnavailable):
            raise found
        return _rsmq_settings(ref.name, found) if isinstance(found, QueueAttributes) else []


def _rsmq_settings(name: str, found: QueueAttributes) -> Pairs:
    size = "no limit" if found.maxsize < 0 else bytes_text(found.maxsize)
    return [
        ("Visibility timeout", duration_text(found.vt)),
        ("Delay", duration_text(found.delay)),
        ("Largest message", size),
        ("Sent ever", count_text(found.totalsent)),
        ("Received ever", count_text(found.totalrecv)),
        ("Dead-letter queue", name + DEAD_SUFFIX),
        *_rsmq_bounds(found.bounds),
    ]


def _rsmq_bounds(found: QueueBounds) -> Pairs:
    if not found.any:
        return []
    ttl_s = found.message_ttl_s
    return [
        ("Most messages", count_text(found.max_messages) if found.max_messages > 0 else "no bound"),
        ("Most bytes", bytes_text(found.max_bytes) if found.max_bytes > 0 else "no bound"),
        ("Messages expire after", duration_text(ttl_s) if ttl_s > 0 else "no TTL"),
        ("What does not fit", "refused" if found.overflow == "refuse" else "dead-lettered"),
        ("Refused", count_text(found.refused)),
        ("Dead-lettered because full", count_text(found.overflowed)),
        ("Expired", count_text(found.expired)),
    ]


def _chasqui_settings(sample: QueueSample) -> Pairs:
    return [
        ("Consumer group", GROUP),
        ("Paused", "yes" if sample.paused else "no"),
        ("Workers", count_text(sample.workers or 0)),
        ("Recurring jobs", count_text(sample.recurring)),
        ("Added ever", count_text(sample.entered or 0)),
        ("Dead letters ever", count_text(sample.died or 0)),
        ("Events ever", count_text(sample.events_seen)),
    ]


def _gomq_settings(sample: QueueSample) -> Pairs:
    return [
        ("Peers", count_text(sample.workers or 0)),
        ("Published ever", count_text(sample.entered or 0)),
    ]


def _kqueue_settings(sample: QueueSample) -> Pairs:
    return [
        ("Subscribers", count_text(sample.workers or 0)),
        ("Received since the server was started", count_text(sample.entered or 0)),
        ("Delivered since then", count_text(sample.left or 0)),
    ]


_SETTINGS: Final[dict[str, Callable[[QueueSample], Pairs]]] = {
    "chasqui": _chasqui_settings,
    "gomq": _gomq_settings,
    "kqueue": _kqueue_settings,
}


def _chasqui_actions(row: QueueRow) -> list[str]:
    return ["resume" if row.paused else "pause", "drain", "purge", "send"]


_ACTIONS: Final[dict[str, Callable[[QueueRow], list[str]]]] = {
    "rsmq": lambda _: ["purge", "send"],
    "chasqui": _chasqui_actions,
    "gomq": lambda _: ["purge", "send"],
    "kqueue": lambda _: ["send"],
}
