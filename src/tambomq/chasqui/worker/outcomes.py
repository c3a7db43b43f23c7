"""The outcomes of runs: done, or, if the handler raised, retry, dead letter or cancellation.

A run whose handler returned goes to the settler directly, unless its result is kept, runs are
observed, or some job was cancelled: those come here too. In this code a handler *returns*, and a
job is *given back* to the queue. Users see a job that was given back as "returned": in
`WorkerStats.returned`, and as the outcome of a run.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import Any

from tambomq.chasqui.decisions import MAX_DETAIL, DeadLettered, Retry, after_failure
from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import fits_page
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, HandlerRun
from tambomq.chasqui.options import RunOptions
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.chasqui.worker.observed_runs import ObservedRuns, Run
from tambomq.chasqui.worker.settlement import Settlement
from tambomq.chasqui.worker.settler import Settler
from tambomq.clock import now_ms
from tambomq.errors import CancelJob, RetryIn
from tambomq.failures import FailureLog, headline, text_of, type_of
from tambomq.log import with_fields
from tambomq.runtime.observer import RunOutcome

log = logging.getLogger(__name__)


class OutcomeReporter:
    """Settles the runs of one worker that do not go to the settler directly."""

    def __init__(
        self,
        options: RunOptions,
        context: ConsumerContext,
        settler: Settler,
        in_flight: InFlight,
        cancel_reasons: dict[str, str],
        runs: ObservedRuns | None,
    ) -> None:
        """*cancel_reasons*: why entries were cancelled; Redis has removed these entries already.

        Without *runs* nothing is recorded.
        """
        self._in_flight = in_flight
        self.cancel_reasons = cancel_reasons
        """The reasons by entry; nearly always empty, so checking it costs little."""
        self._options, self._context, self._settler = options, context, settler
        self._stats, self._runs = settler.stats, runs
        self.is_observed = runs is not None
        """Whether to call `announce` and `returned`."""
        self._log = with_fields(log, **context.log_fields)
        call_later = asyncio.get_running_loop().call_later
        self._failures = FailureLog(self._log, "job", context.keys.queue, call_later)

    def returned(self, run: Run, result: bytes | None, took_us: int) -> None:
        """Acknowledge a job whose handler returned; keep *result* if there is one."""
        if run.entry in self.cancel_reasons:
            self.cancelled(run)
            return
        if self._runs is not None:
            self._runs.hold(run, "completed", took_us)
        entry, id, attempt = run.entry, run.envelope.id, run.envelope.attempt + 1
        if result is None:
            self._settler.completed(entry, id, run.name, attempt, took_us)
        else:
            ran = HandlerRun(entry, id, run.name, attempt, took_us)
            ttl_s = self._options.result_ttl_s or 0
            call = worker_ops.done(self._context, ran, result, ttl_s, now_ms())
            self._settler.submit(Settlement(entry, call, "completed"))

    def failed(self, run: Run, error: BaseException) -> None:
        """Retry, dead-letter or cancel the job of a handler that raised *error*."""
        if run.entry in self.cancel_reasons:
            self.cancelled(run)
            return
        took_us = run.took_us
        self._log_failure(run.envelope, error)
        if isinstance(error, CancelJob):
            outcome: RunOutcome = self._cancel(run, error)
        else:
            outcome = self._retry_or_bury(run, error, took_us)
        if self._runs is not None:
            self._runs.hold(run, outcome, took_us, headline(type_of(error), text_of(error)))

    def cancelled(self, run: Run) -> None:
        """Forget a job that was cancelled while it ran: it is removed in Redis already."""
        reason = self.drop(run.entry, run.envelope.id)
        if self._runs is not None:
            self._runs.end(run, "cancelled", run.took_us, headline("CancelJob", reason))

    def given_back(self, run: Run) -> None:
        """Note that a job that was running is given back, because the worker ends."""
        if run.entry in self.cancel_reasons:
            self.cancelled(run)
        elif self._runs is not None:
            self._runs.end(run, "returned", run.took_us)

    def drop(self, entry: str, id: str) -> str:
        """Forget the entry of a job that was cancelled; return the reason."""
        reason = self.cancel_reasons.pop(entry, "")
        self._in_flight.release((entry,))
        self._stats.cancelled += 1
        queue, fields = self._context.keys.queue, {"job": id, "entry": entry}
        self._log.info("job %r of queue %r was cancelled: %s", id, queue, reason, extra=fields)
        return reason

    def bury(self, entry: str, letter: DeadLettered, took_us: int | None) -> None:
        """Dead-letter a job; *took_us* is `None` if it did not run."""
        dlq_cap = self._options.dlq_cap
        call = worker_ops.bury(self._context, entry, letter, dlq_cap, now_ms(), took_us)
        on_done = partial(self._log_buried, letter)
        self._settler.submit(Settlement(entry, call, "buried", on_done=on_done))

    def announce(self, entry: str, id: str, name: str, attempt: int) -> int:
        """Tell the observer that a run begins; return how long its job waited, in ms."""
        if self._runs is not None:
            self._runs.begin(id, name, attempt)
        return max(0, now_ms() - worker_ops.entry_ms(entry))

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

    def _log_buried(self, letter: DeadLettered) -> None:
        self._log.error(
            "job %r of queue %r was moved to the dead-letter queue after %d %s: %s",
            letter.id,
            self._context.keys.queue,
            letter.attempt,
            "run" if letter.attempt == 1 else "runs",
            headline(letter.reason, headline(letter.error_type, letter.detail)),
            extra={"job": letter.id, "attempt": letter.attempt},
        )

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

        # The two dialects differ in the bytes of a delayed retry. Redis refuses "page" if the
        # queue's leader cannot read it; every leader reads "engine".
        self._settler.submit(
            Settlement(run.entry, retry(dialect), "retried", lambda: retry("engine"))
        )
