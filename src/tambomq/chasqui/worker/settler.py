"""The last stage of a worker: reports to Redis how jobs ended, many per round trip.

What comes up in one turn of the event loop is sent together. While Redis is unreachable, reports
are kept and sent again, and their entries stay in flight: no other worker runs these jobs unless
their leases run out first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.clock import backoff_delays, now_ms
from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Arg, Call, Outcome

log = logging.getLogger(__name__)

# A script with this many jobs takes about a millisecond.
MAX_BATCH_JOBS = 256
# With more round trips at a time each would only carry fewer jobs.
MAX_ROUND_TRIPS = 2

_STARTED_ARGS, _COMPLETED_ARGS = 3, 5
"""Arguments of `worker_ops.settle` for each job that starts, and for each that completed."""


class WorkerStats(msgspec.Struct):
    """Counters of a worker since it was created."""

    received: int = 0
    completed: int = 0
    failed: int = 0
    """Runs whose handler raised."""
    retried: int = 0
    buried: int = 0
    """Moved to the dead-letter queue."""
    cancelled: int = 0
    """Ended by `CancelJob`, or by `Queue.cancel_job` while they were here."""
    returned: int = 0
    """Given back: not begun, or cancelled when the worker ended."""
    lost: int = 0
    """Finished here after another worker had claimed them, or after they were deleted."""


class Settlement(msgspec.Struct, frozen=True):
    """A job that is settled by one call for itself: keep its result, retry it or dead-letter it.

    Jobs that only completed share one call instead, `worker_ops.settle`.
    """

    entry: str
    call: Call[Any]
    counter: str
    """The field of `WorkerStats` to increment on success."""
    fallback: Callable[[], Call[Any]] | None = None
    """Makes the call to send instead if the server refuses this one. It refuses with a text: the
    reason."""


class SettlementBatch(msgspec.Struct, frozen=True):
    """The calls of one round trip, and the entries that they settle."""

    calls: list[Call[Any]]
    completed: list[str]
    """Entries that the first call acknowledges."""
    settlements: list[Settlement]
    """One for each of the other calls."""


class Settler:
    """Settles the jobs of one worker and releases their entries."""

    def __init__(
        self,
        store: AsyncStore,
        context: ConsumerContext,
        in_flight: InFlight,
        stats: WorkerStats,
        count_cancelled: Callable[[list[str]], Awaitable[int]],
    ) -> None:
        """Release entries from *in_flight* once they are settled, and count them in *stats*.

        *count_cancelled* says how many of some lost entries were cancelled.
        """
        self._store, self._context = store, context
        self._in_flight, self.stats = in_flight, stats
        self._count_cancelled = count_cancelled
        self._log = with_fields(log, **context.log_fields)
        self._loop = asyncio.get_running_loop()
        self._started: list[Arg] = []
        self._completed: list[Arg] = []
        self._settlements: list[Settlement] = []
        self._round_trips: set[asyncio.Task[None]] = set()
        self._flush_scheduled = False
        self._wants_events = context.events_cap > 0
        self.unsettled = 0
        """Jobs that have finished here while Redis still counts them as pending."""

    # ── called by the handler pool; sent at the end of this turn of the loop ─

    def started(self, id: str, name: str, attempt: int) -> None:
        """Report that a job starts to run, if this worker writes events."""
        if self._wants_events:
            self._started += (id, name, attempt)
            self._schedule_flush()

    def completed(self, entry: str, id: str, name: str, attempt: int, duration_us: int) -> None:
        """Acknowledge a job whose handler returned and whose result is not kept."""
        self._completed += (entry, id, name, attempt, duration_us)
        self.unsettled += 1
        self._schedule_flush()

    def submit(self, settlement: Settlement) -> None:
        """Settle a job by a call of its own."""
        self._settlements.append(settlement)
        self.unsettled += 1
        self._schedule_flush()

    # ── called by the worker ─────────────────────────────────────────────────

    async def drain(self) -> None:
        """Wait until everything is sent and answered."""
        while self._round_trips or self._started or self._completed or self._settlements:
            self._flush()
            await asyncio.wait(self._round_trips)

    def cancel(self) -> None:
        """Abandon the round trips under way."""
        for task in self._round_trips:
            task.cancel()

    # ── batches ──────────────────────────────────────────────────────────────

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and len(self._round_trips) < MAX_ROUND_TRIPS:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        while len(self._round_trips) < MAX_ROUND_TRIPS and (batch := self._next_batch()):
            task = self._loop.create_task(self._send(batch))
            self._round_trips.add(task)
            task.add_done_callback(self._on_sent)

    def _next_batch(self) -> SettlementBatch | None:
        """Return what goes into the next round trip; `None` if nothing is left."""
        started, self._started = _split(self._started, _STARTED_ARGS)
        completed, settlements = list[Arg](), list[Settlement]()
        # The event that a job starts comes before the event that it ended: if some starts do not
        # fit into this batch, all ends wait for the next.
        if not self._started:
            completed, self._completed = _split(self._completed, _COMPLETED_ARGS)
            settlements = self._settlements[:MAX_BATCH_JOBS]
            self._settlements = self._settlements[MAX_BATCH_JOBS:]
        if not (started or completed or settlements):
            return None
        calls = [settlement.call for settlement in settlements]
        if started or completed:
            calls.insert(0, worker_ops.settle(self._context, now_ms(), started, completed))
        entries = [str(entry) for entry in completed[::_COMPLETED_ARGS]]
        return SettlementBatch(calls, entries, settlements)

    async def _send(self, batch: SettlementBatch) -> None:
        outcomes = await self._store.outcomes(batch.calls)
        outcomes = await self._repeat_unanswered(batch.calls, outcomes)
        lost: list[str] = []
        if len(outcomes) > len(batch.settlements):
            lost += self._count_completed(batch.completed, outcomes.pop(0))
        resubmitted = self._count(batch.settlements, outcomes, lost)
        if lost:
            await self._count_lost(lost)
        self.unsettled -= len(batch.completed) + len(batch.settlements)
        settled = (each.entry for each in batch.settlements if each.entry not in resubmitted)
        self._in_flight.release((*batch.completed, *settled))

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._round_trips.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._log.error("cannot settle jobs of queue %r", self._queue, exc_info=error)
        self._flush()

    async def _repeat_unanswered(
        self, calls: list[Call[Any]], outcomes: list[Outcome]
    ) -> list[Outcome]:
        """Repeat all *calls* until Redis has answered each once, and not refused for now."""
        delays = backoff_delays()
        while any(isinstance(o, StoreUnavailable | StoreRefused) for o in outcomes):
            self._log.warning("cannot settle jobs of queue %r yet; trying again", self._queue)
            await asyncio.sleep(next(delays))
            again = await self._store.outcomes(calls)
            # A repeated call that was already done finds its entry settled and says so: keep the
            # first answer of each.
            outcomes = [
                new if isinstance(old, StoreUnavailable | StoreRefused) else old
                for old, new in zip(outcomes, again, strict=True)
            ]
        return outcomes

    # ── counting ─────────────────────────────────────────────────────────────

    def _count_completed(self, entries: list[str], outcome: Outcome) -> list[str]:
        """Count what was done; return the entries that were lost."""
        if isinstance(outcome, TamboError):
            self._log.error(
                "cannot settle %d jobs of queue %r: %s",
                *(len(entries), self._queue, outcome),
                extra={"count": len(entries)},
            )
            return entries
        self.stats.completed += len(entries) - len(outcome)
        return list(outcome)

    def _count(
        self, settlements: list[Settlement], outcomes: list[Outcome], lost: list[str]
    ) -> set[str]:
        """Count what was done, and append the entries that were lost to *lost*.

        Submits fallbacks, and returns the entries that they settle.
        """
        resubmitted: set[str] = set()
        stats = self.stats
        for settlement, outcome in zip(settlements, outcomes, strict=True):
            entry, counter = settlement.entry, settlement.counter
            if isinstance(outcome, str) and settlement.fallback is not None:
                self._log.info(
                    "entry %r of queue %r: fallback, %s",
                    entry,
                    self._queue,
                    outcome,
                    extra={"entry": entry},
                )
                self.submit(Settlement(entry, settlement.fallback(), counter))
                resubmitted.add(entry)
            elif isinstance(outcome, TamboError) or not outcome:
                lost.append(entry)
                if isinstance(outcome, TamboError):
                    self._log.error(
                        "cannot settle entry %r of %r: %s",
                        entry,
                        self._queue,
                        outcome,
                        extra={"entry": entry},
                    )
            else:
                setattr(stats, counter, getattr(stats, counter) + 1)
        return resubmitted

    async def _count_lost(self, entries: list[str]) -> None:
        cancelled = await self._count_cancelled(entries)
        self.stats.cancelled += cancelled
        if lost := len(entries) - cancelled:
            self.stats.lost += lost
            self._log.warning(
                "%d jobs of queue %r were claimed by another worker or deleted while they ran",
                *(lost, self._queue),
                extra={"count": lost},
            )

    @property
    def _queue(self) -> str:
        return self._context.keys.queue


def _split(flat: list[Arg], args_per_job: int) -> tuple[list[Arg], list[Arg]]:
    size = MAX_BATCH_JOBS * args_per_job
    return (flat, []) if len(flat) <= size else (flat[:size], flat[size:])
