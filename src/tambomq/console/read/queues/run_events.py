"""What the last events of a ChasquiMQ queue say of its runs: how many failed, and their times.

A bounded sample: the newest events of some queues at each refresh, in turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import events as event_ops
from tambomq.console.read.queues.event_times import (
    ENDED,
    EventId,
    TimeBuckets,
    event_id,
    run_times,
    wait_times,
)
from tambomq.console.read.queues.turns import Turns
from tambomq.errors import StoreUnavailable
from tambomq.store.aio import AsyncStore

QUEUES: Final = 10
"""Queues of one refresh whose events are read: only those with new events take part."""
EVENTS: Final = 200
"""Events of one queue that are read."""
WINDOW_MS: Final = 10_000


class RunSummary(msgspec.Struct, frozen=True):
    """The runs among the newest events of a queue."""

    runs: int
    failed: int
    failed_per_s: float
    failed_total: int
    """Since the first look; exact if no more than `EVENTS` were written between two looks."""
    at_ms: int
    newest: EventId = (0, 0)
    """The id of the newest event."""
    run_times: TimeBuckets = TimeBuckets()
    """Of the runs that were seen to end since the first look."""
    wait_times: TimeBuckets = TimeBuckets()
    """Of the runs that were seen to begin since the first look, as far as events say it."""


class RunEvents:
    """Reads the newest events of queues whose events have moved."""

    def __init__(self, store: AsyncStore) -> None:
        self._store, self._turns = store, Turns(QUEUES)
        self._written: dict[str, int] = {}
        self._summaries: dict[str, RunSummary] = {}

    async def look(self, written: Mapping[str, int], now_ms: int) -> Mapping[str, RunSummary]:
        """Return what is known of each queue. *written* is how many events it ever had."""
        moved = [name for name, count in written.items() if self._written.get(name) != count]
        chosen = self._turns.take(moved)
        calls = [event_ops.read_back(Keys(name), "+", EVENTS) for name in chosen]
        for name, events in zip(chosen, await self._store.outcomes(calls), strict=True):
            if isinstance(events, StoreUnavailable):
                raise events
            if isinstance(events, list):
                self._written[name] = written[name]
                self._summaries[name] = summary(events, now_ms, self._summaries.get(name))
        self._forget_all_but(written, now_ms)
        return self._summaries

    def _forget_all_but(self, written: Mapping[str, int], now_ms: int) -> None:
        self._written = {name: n for name, n in self._written.items() if name in written}
        self._summaries = {
            name: _idle(each) if now_ms - each.at_ms > WINDOW_MS else each
            for name, each in self._summaries.items()
            if name in written
        }


def summary(
    events: Sequence[QueueEvent], now_ms: int, before: RunSummary | None = None
) -> RunSummary:
    """Return the summary of *events*, the newest first."""
    ended = [event for event in events if event.name in ENDED]
    recent = [event for event in ended if event_ms(event) >= now_ms - WINDOW_MS]
    failed = sum(event.name == "failed" for event in recent)
    # A full page that does not reach back far enough covers less time than the window.
    oldest_ms = min(map(event_ms, events), default=now_ms)
    covered_ms = WINDOW_MS
    if len(events) >= EVENTS and oldest_ms > now_ms - WINDOW_MS:
        covered_ms = max(1, now_ms - oldest_ms)
    per_s = failed * 1000 / covered_ms
    total, runs, waits = 0, TimeBuckets(), TimeBuckets()
    newest = max(map(event_id, events), default=(0, 0))
    if before is not None:
        newest = max(newest, before.newest)
        total = before.failed_total + _failed_since(before, events, per_s, now_ms)
        runs = before.run_times.plus(s for at, s in run_times(events) if at > before.newest)
        waits = before.wait_times.plus(s for at, s in wait_times(events) if at > before.newest)
    all_failed = sum(event.name == "failed" for event in ended)
    return RunSummary(len(ended), all_failed, per_s, total, now_ms, newest, runs, waits)


def _failed_since(
    before: RunSummary, events: Sequence[QueueEvent], per_s: float, now_ms: int
) -> int:
    """Return how many runs failed since *before*: counted, or estimated if events are missing."""
    if len(events) >= EVENTS and event_id(events[-1]) > before.newest:
        return round(per_s * max(0, now_ms - before.at_ms) / 1000)
    return sum(event.name == "failed" and event_id(event) > before.newest for event in events)


def event_ms(event: QueueEvent) -> int:
    """Return when *event* was written, by its entry."""
    return event_id(event)[0]


def _idle(before: RunSummary) -> RunSummary:
    return msgspec.structs.replace(before, failed_per_s=0.0)
