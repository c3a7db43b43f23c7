"""Samples of ChasquiMQ queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tambomq.chasqui.bulk import sample as ops
from tambomq.chasqui.bulk.sample import JobSample
from tambomq.chasqui.keys import Keys
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.queues.run_events import RunEvents, RunSummary
from tambomq.errors import StoreUnavailable
from tambomq.store.aio import AsyncStore

CHUNK: Final = 200
"""Queues of one round trip: others' calls get their turn in between."""


class ChasquiQueues:
    """Samples ChasquiMQ queues."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._events = RunEvents(store)

    async def sample(self, names: Sequence[str], now_ms: int) -> dict[str, QueueSample]:
        """Return the numbers of the queues that can be read. Raises `StoreUnavailable`."""
        found: dict[str, JobSample] = {}
        for first in range(0, len(names), CHUNK):
            chunk = names[first : first + CHUNK]
            outcomes = await self._store.outcomes([ops.sample(Keys(name)) for name in chunk])
            for name, outcome in zip(chunk, outcomes, strict=True):
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
                if isinstance(outcome, JobSample):
                    found[name] = outcome
        runs = await self._events.look({name: each.events for name, each in found.items()}, now_ms)
        return {name: _sample(each, runs, name, now_ms) for name, each in found.items()}


def _sample(
    found: JobSample, runs: Mapping[str, RunSummary], name: str, now_ms: int
) -> QueueSample:
    active = max(0, found.pending - found.returned)
    waiting = max(0, found.length - active)
    seen = runs.get(name)
    overdue_s = None if found.due_ms is None else (now_ms - found.due_ms) / 1000
    waits_s = None if found.first_ms is None else max(0, now_ms - found.first_ms) / 1000
    if overdue_s is not None and overdue_s > 0:
        waits_s = max(waits_s or 0.0, overdue_s)
    return QueueSample(
        depth=found.length + found.delayed,
        visible=waiting,
        in_flight=active,
        delayed=found.delayed,
        dead=found.dead,
        oldest_s=waits_s,
        overdue_s=overdue_s if overdue_s is not None and overdue_s > 0 else None,
        # A delayed job counts when it is promoted: it enters the stream then.
        entered=found.added,
        left=max(0, found.added - found.length),
        failed=None if seen is None else seen.failed_total,
        failed_per_s=None if seen is None else seen.failed_per_s,
        died=found.died,
        paused=found.paused,
        workers=found.consumers,
        runs=0 if seen is None else seen.runs,
        failed_runs=0 if seen is None else seen.failed,
        run_times=None if seen is None else seen.run_times,
        wait_times=None if seen is None else seen.wait_times,
        recurring=found.repeatable,
        damaged=found.damaged,
        events_seen=found.events,
    )
