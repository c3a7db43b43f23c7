"""The last stage of a worker: reports to Redis how jobs ended, many per round trip.

All outcomes of one turn of the event loop are sent together. While Redis is unreachable, reports
are kept and sent again, and their entries stay in flight: no other worker runs these jobs unless
their leases run out first. Reports that Redis refuses, as an ACL may make it, are put aside, so
that the others are sent; they are repeated until they are allowed, or the worker ends.

A report may be executed and its reply be lost with the connection. Repeated, it finds its entry no
longer pending, as if another worker had claimed or settled it: it counts as lost (`WorkerStats`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.chasqui.worker.observed_runs import ObservedRuns
from tambomq.chasqui.worker.settlement import CompletedJobs, Settlement, Unsettled, WorkerStats
from tambomq.clock import backoff_delays, now_ms
from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.log import with_fields
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Arg, Outcome

log = logging.getLogger(__name__)

# A script with this many jobs takes about a millisecond.
MAX_BATCH_JOBS = 256
# With more round trips at a time each would only carry fewer jobs.
MAX_ROUND_TRIPS = 2
# A call stays refused until an administrator changes an ACL or a password.
RESEND_REFUSED_S = 2.0

_STARTED_ARGS, _COMPLETED_ARGS = 3, 5
"""Arguments of `worker_ops.settle` for each job that starts, and for each that completed."""


class Settler:
    """Settles the jobs of one worker and releases their entries."""

    def __init__(
        self,
        store: AsyncStore,
        context: ConsumerContext,
        in_flight: InFlight,
        stats: WorkerStats,
        cancelled_among: Callable[[list[str]], Awaitable[dict[str, str]]],
        runs: ObservedRuns | None = None,
    ) -> None:
        """Release entries from *in_flight* once they are settled, and count them in *stats*.

        *cancelled_among* says which of some lost entries were cancelled, and why. The outcome of
        each is reported to *runs*.
        """
        self._store, self._context, self._queue = store, context, context.keys.queue
        self._in_flight, self.stats = in_flight, stats
        self._cancelled_among, self._runs = cancelled_among, runs
        self._log = with_fields(log, **context.log_fields)
        self._loop = asyncio.get_running_loop()
        self._started: list[Arg] = []
        self._completed: list[Arg] = []
        self._settlements: list[Settlement] = []
        self._round_trips: set[asyncio.Task[None]] = set()
        self._refused: list[Unsettled] = []
        self._resending: asyncio.Task[None] | None = None
        """Sends again what was refused; it does not count in `MAX_ROUND_TRIPS`."""
        self._flush_scheduled, self._closed = False, False
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

    @property
    def is_refused(self) -> bool:
        """Whether Redis refuses, by its ACL or a changed password, to settle some jobs."""
        return self._resending is not None

    async def drain(self) -> None:
        """Wait until everything is sent and answered, or `cancel` is called."""
        while not self._closed and (tasks := self._under_way()):
            await asyncio.wait(tasks)

    def cancel(self) -> None:
        """Abandon the round trips under way, and send nothing more."""
        self._closed = True
        for task in self._under_way():
            task.cancel()

    def _under_way(self) -> set[asyncio.Task[None]]:
        self._flush()
        return self._round_trips | ({self._resending} if self._resending else set())

    # ── batches ──────────────────────────────────────────────────────────────

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and len(self._round_trips) < MAX_ROUND_TRIPS:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        # A round trip that is cancelled flushes, too: after `cancel` it must not begin another.
        while not self._closed and len(self._round_trips) < MAX_ROUND_TRIPS:
            if not (batch := self._next_batch()):
                break
            task = self._loop.create_task(self._send(batch))
            self._round_trips.add(task)
            task.add_done_callback(self._on_sent)

    def _next_batch(self) -> list[Unsettled]:
        """Return what goes into the next round trip; empty if nothing is left."""
        started, self._started = _split(self._started, _STARTED_ARGS)
        # The event that a job starts comes before the event that it ended: if some starts do not
        # fit into this batch, all ends wait for the next.
        batch, completed = list[Unsettled](), list[Arg]()
        if not self._started:
            completed, self._completed = _split(self._completed, _COMPLETED_ARGS)
            batch += self._settlements[:MAX_BATCH_JOBS]
            self._settlements = self._settlements[MAX_BATCH_JOBS:]
        if started or completed:
            call = worker_ops.settle(self._context, now_ms(), started, completed)
            entries = [str(entry) for entry in completed[::_COMPLETED_ARGS]]
            batch.insert(0, CompletedJobs(call, entries))
        return batch

    def _on_sent(self, task: asyncio.Task[None]) -> None:
        self._round_trips.discard(task)
        self._flush()

    async def _send(self, batch: list[Unsettled]) -> None:
        try:
            outcomes = await self._outcomes(batch)
            if any(isinstance(o, StoreUnavailable | StoreRefused) for o in outcomes):
                await self._repeat_unanswered(batch, outcomes)
                batch, outcomes = self._put_aside(batch, outcomes)
            await self._settle(batch, outcomes)
        except Exception as error:  # noqa: BLE001  (what a log handler of the user raises)
            self._say(logging.ERROR, "cannot settle jobs of queue %r", self._queue, exc_info=error)

    def _say(self, level: int, text: str, *args: object, exc_info: Any = None) -> None:
        """Log; ignore errors of the user's log handlers, so that the jobs are still settled."""
        with suppress(Exception):
            self._log.log(level, text, *args, exc_info=exc_info)

    async def _outcomes(self, batch: Sequence[Unsettled]) -> list[Outcome]:
        try:
            return await self._store.outcomes([each.call for each in batch])
        except Exception as error:  # noqa: BLE001  (such as what a credential provider raises)
            return [StoreUnavailable(f"{type(error).__name__}: {error}")] * len(batch)

    async def _repeat_unanswered(self, batch: list[Unsettled], outcomes: list[Outcome]) -> None:
        """Repeat the calls that got no answer, and only those, until each has its outcome."""
        delays = backoff_delays()
        while again := [i for i, o in enumerate(outcomes) if isinstance(o, StoreUnavailable)]:
            why = outcomes[again[0]]
            self._say(logging.WARNING, "cannot settle jobs of queue %r yet: %s", self._queue, why)
            await asyncio.sleep(next(delays))
            answers = await self._outcomes([batch[i] for i in again])
            for i, answer in zip(again, answers, strict=True):
                outcomes[i] = answer

    # ── what Redis refuses ───────────────────────────────────────────────────

    def _put_aside(
        self, batch: list[Unsettled], outcomes: list[Outcome]
    ) -> tuple[list[Unsettled], list[Outcome]]:
        """Keep refused calls for `_resend_refused`; return the others with their outcomes."""
        pairs = list(zip(batch, outcomes, strict=True))
        if refused := [each for each, o in pairs if isinstance(o, StoreRefused)]:
            self._refused += refused
            if self._resending is None and not self._closed:
                self._resending = self._loop.create_task(self._resend_refused())
            self._say(
                logging.WARNING,
                "Redis refuses to settle %d jobs of queue %r: %s; they are kept and repeated: "
                "change the ACL or the password",
                *(sum(len(each.entries) for each in refused), self._queue),
                next(o for o in outcomes if isinstance(o, StoreRefused)),
            )
        rest = [(each, o) for each, o in pairs if not isinstance(o, StoreRefused)]
        return [each for each, _ in rest], [o for _, o in rest]

    async def _resend_refused(self) -> None:
        delays = backoff_delays(longest_s=RESEND_REFUSED_S)
        try:
            while self._refused:
                await asyncio.sleep(next(delays))
                kept, self._refused = self._refused, []
                for i in range(0, len(kept), MAX_BATCH_JOBS):
                    await self._send(kept[i : i + MAX_BATCH_JOBS])
        finally:
            self._resending = None

    # ── counting ─────────────────────────────────────────────────────────────

    async def _settle(self, batch: list[Unsettled], outcomes: list[Outcome]) -> None:
        """Count what Redis has settled, and release the entries."""
        ended, lost = list[str](), list[str]()
        for each, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, str) and isinstance(each, Settlement) and each.fallback:
                call, on_done = each.fallback(), each.on_done
                self.submit(Settlement(each.entry, call, each.counter, on_done=on_done))
            else:
                ended += each.entries
                lost += self._count(each, outcome)
        self.unsettled -= sum(len(each.entries) for each in batch)
        try:
            if lost:
                await self._count_lost(lost)
        finally:
            self._in_flight.release(ended)
            if self._runs is not None:
                self._runs.settled(entry for entry in ended if entry not in lost)
        # Last: it may be a log handler of the user, which may raise.
        for each, outcome in zip(batch, outcomes, strict=True):
            self._report(each, outcome)

    def _count(self, each: Unsettled, outcome: Outcome) -> list[str]:
        """Count what was done; return the entries that were lost."""
        # A text is the reason why nothing was done.
        if isinstance(outcome, TamboError | str):
            return each.entries
        if isinstance(each, CompletedJobs):
            self.stats.completed += len(each.entries) - len(outcome)
            return list(outcome)
        if not outcome:
            return each.entries
        setattr(self.stats, each.counter, getattr(self.stats, each.counter) + 1)
        return []

    def _report(self, each: Unsettled, outcome: Outcome) -> None:
        if outcome is True:
            if isinstance(each, Settlement) and each.on_done is not None:
                each.on_done()
        elif isinstance(outcome, TamboError | str):
            falls_back = isinstance(outcome, str) and isinstance(each, Settlement) and each.fallback
            self._log.log(
                logging.INFO if falls_back else logging.ERROR,
                "cannot settle %d jobs of queue %r%s: %s",
                len(each.entries),
                self._queue,
                " in the page dialect" if falls_back else "",
                outcome,
                extra={"count": len(each.entries), "entry": ", ".join(each.entries[:1])},
            )

    async def _count_lost(self, entries: list[str]) -> None:
        cancelled = await self._cancelled_among(entries)
        lost = [entry for entry in entries if entry not in cancelled]
        self.stats.cancelled += len(cancelled)
        self.stats.lost += len(lost)
        if self._runs is not None:
            self._runs.cancelled(cancelled)
            self._runs.lost(lost)
        for entry, reason in cancelled.items():
            self._log.info(
                "entry %r of queue %r was cancelled before its run was settled: %s",
                *(entry, self._queue, reason),
                extra={"entry": entry},
            )
        if lost:
            self._log.warning(
                "%d jobs of queue %r were claimed by another worker or deleted while they ran, "
                "or the reply that they are settled was lost",
                *(len(lost), self._queue),
                extra={"count": len(lost)},
            )


def _split(flat: list[Arg], args_per_job: int) -> tuple[list[Arg], list[Arg]]:
    size = MAX_BATCH_JOBS * args_per_job
    return (flat, []) if len(flat) <= size else (flat[:size], flat[size:])
