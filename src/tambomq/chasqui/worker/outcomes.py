"""The outcomes of runs: decides what becomes of a job whose handler raised, and tells the settler.

A run that returned goes to the settler directly. The observer is told about all of them here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from time import perf_counter_ns
from typing import Any

import msgspec

from tambomq.chasqui.decisions import MAX_DETAIL, DeadLettered, Retry, after_failure
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import fits_page
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, HandlerRun
from tambomq.chasqui.options import RunOptions
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.chasqui.worker.settler import Settlement, Settler
from tambomq.clock import now_ms
from tambomq.errors import CancelJob, RetryIn
from tambomq.failures import FailureLog, headline, text_of, type_of
from tambomq.log import with_fields
from tambomq.runtime.observer import GuardedObserver, RunOutcome, RunRecord

log = logging.getLogger(__name__)


class Run(msgspec.Struct, gc=False):
    """A run of a handler that has begun."""

    entry: str
    envelope: Envelope
    name: str
    started_ns: int
    waited_ms: int = 0
    """Only known if there is an observer."""

    @property
    def took_us(self) -> int:
        """Microseconds since it began."""
        return (perf_counter_ns() - self.started_ns) // 1000


class OutcomeReporter:
    """Settles the runs of one worker that did not simply return, and tells the observer of all."""

    def __init__(
        self,
        options: RunOptions,
        context: ConsumerContext,
        settler: Settler,
        in_flight: InFlight,
        cancelled: dict[str, str],
        observer: GuardedObserver | None,
    ) -> None:
        """*cancelled* has the reasons of cancelled entries, which are ended already.

        Without an *observer* nothing is recorded.
        """
        self._in_flight, self._cancelled = in_flight, cancelled
        self.cancelled_entries = cancelled
        """The reasons of cancelled entries, for a quick look: it is nearly always empty."""
        self._options, self._context, self._settler = options, context, settler
        self._stats, self._observer = settler.stats, observer
        self.is_observed = observer is not None
        """Whether to call `announce` and `observe`."""
        self._log = with_fields(log, **context.log_fields)
        call_later = asyncio.get_running_loop().call_later
        self._failures = FailureLog(self._log, "job", context.keys.queue, call_later)

    def returned(self, run: Run, result: bytes | None, took_us: int) -> None:
        """Acknowledge a job whose handler returned; keep *result* if there is one."""
        if run.entry in self._cancelled:
            self.cancelled(run)
            return
        entry, id, attempt = run.entry, run.envelope.id, run.envelope.attempt + 1
        if result is None:
            self._settler.completed(entry, id, run.name, attempt, took_us)
        else:
            ran = HandlerRun(entry, id, run.name, attempt, took_us)
            ttl_s = self._options.result_ttl_s or 0
            call = worker_ops.done(self._context, ran, result, ttl_s, now_ms())
            self._settler.submit(Settlement(entry, call, "completed"))
        self.observe(run, "completed", took_us)

    def failed(self, run: Run, error: BaseException) -> None:
        """Retry, dead-letter or cancel the job of a handler that raised *error*."""
        if run.entry in self._cancelled:
            self.cancelled(run)
            return
        took_us = run.took_us
        self._log_failure(run.envelope, error)
        if isinstance(error, CancelJob):
            outcome: RunOutcome = self._cancel(run, error)
        else:
            outcome = self._retry_or_bury(run, error, took_us)
        if self._observer is not None:
            self.observe(run, outcome, took_us, headline(type_of(error), text_of(error)))

    def cancelled(self, run: Run) -> None:
        """Forget a job that was cancelled while it ran: Redis has ended it already."""
        reason = self.drop(run.entry, run.envelope.id)
        if self._observer is not None:
            self.observe(run, "cancelled", run.took_us, headline("CancelJob", reason))

    def drop(self, entry: str, id: str) -> str:
        """Forget the entry of a job that was cancelled; return the reason."""
        reason = self._cancelled.pop(entry, "")
        self._in_flight.release((entry,))
        self._stats.cancelled += 1
        queue, fields = self._context.keys.queue, {"job": id, "entry": entry}
        self._log.info("job %r of queue %r was cancelled: %s", id, queue, reason, extra=fields)
        return reason

    def bury(self, entry: str, letter: DeadLettered, took_us: int | None) -> None:
        """Dead-letter a job; *took_us* is `None` if it did not run."""
        self._log.error(
            "job %r of queue %r is moved to the dead-letter queue after %d runs: %s",
            letter.id,
            self._context.keys.queue,
            letter.attempt,
            headline(letter.reason, headline(letter.error_type, letter.detail)),
            extra={"job": letter.id, "attempt": letter.attempt},
        )
        dlq_cap = self._options.dlq_cap
        call = worker_ops.bury(self._context, entry, letter, dlq_cap, now_ms(), took_us)
        self._settler.submit(Settlement(entry, call, "buried"))

    def announce(self, entry: str, id: str, name: str, attempt: int) -> int:
        """Tell the observer that a run begins; return how long its job waited, in ms."""
        if self._observer is not None:
            self._observer.run_started(self._context.keys.queue, id, name, attempt)
        return max(0, now_ms() - worker_ops.entry_ms(entry))

    def observe(self, run: Run, outcome: RunOutcome, took_us: int, error: str = "") -> None:
        """Tell the observer, if there is one, how *run* ended."""
        if self._observer is not None:
            envelope = run.envelope
            record = RunRecord(
                self._context.keys.queue,
                envelope.id,
                run.name,
                envelope.attempt + 1,
                outcome,
                run.waited_ms,
                took_us,
                error,
            )
            self._observer.run_ended(record)

    def flush(self) -> None:
        """Log the failures that were only counted so far."""
        self._failures.flush()

    def _log_failure(self, envelope: Envelope, error: BaseException) -> None:
        id, attempt = envelope.id, envelope.attempt + 1
        if isinstance(error, RetryIn | CancelJob):
            # The handler has decided this: it is no fault that needs a traceback.
            self._log.info(
                "job %r of queue %r, run %d: %s: %s",
                *(id, self._context.keys.queue, attempt, type(error).__name__, text_of(error)),
                extra={"job": id, "attempt": attempt},
            )
        else:
            self._failures.failed(id, attempt, error)
        if not isinstance(error, CancelJob):
            self._stats.failed += 1

    def _cancel(self, run: Run, error: CancelJob) -> RunOutcome:
        reason, id = text_of(error)[:MAX_DETAIL], run.envelope.id
        call = worker_ops.abort(self._context, run.entry, id, run.name, reason)
        self._settler.submit(Settlement(run.entry, call, "cancelled"))
        return "cancelled"

    def _retry_or_bury(self, run: Run, error: BaseException, took_us: int) -> RunOutcome:
        decision = after_failure(
            run.envelope, run.name, error, self._options.retry, random.randrange
        )
        if isinstance(decision, DeadLettered):
            self.bury(run.entry, decision, took_us)
            return "dead"
        self._retry(run, decision, error, took_us)
        return "retried"

    def _retry(self, run: Run, decision: Retry, error: BaseException, took_us: int) -> None:
        context, envelope, body = self._context, run.envelope, decision.body
        ran = HandlerRun(run.entry, envelope.id, run.name, envelope.attempt + 1, took_us)
        dialect = self._options.dialect if fits_page(run.name) else "engine"
        reason, wait_ms, now = text_of(error), decision.wait_ms, now_ms()

        def retry(dialect: str) -> Any:
            return worker_ops.retry(context, ran, body, wait_ms, reason, dialect, now)

        self._settler.submit(
            Settlement(run.entry, retry(dialect), "retried", lambda: retry("engine"))
        )
