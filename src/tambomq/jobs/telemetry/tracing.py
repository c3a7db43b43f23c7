"""Spans of OpenTelemetry for adds, waits and runs of typed jobs.

The context of an add travels in a key beside the queue: neither stream entries nor delayed members
have room for it that every engine ignores. The key expires, and is deleted when the job completes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from time import time_ns
from typing import Any, Final

from tambomq.errors import CancelJob, InvalidFormat, RetryIn, TamboError
from tambomq.extras import explained
from tambomq.failures import text_of, type_of
from tambomq.jobs.context import Context
from tambomq.jobs.jobs import Jobs
from tambomq.jobs.telemetry.traced_queues import TracedBlockingQueue, TracedQueue, forget, read

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as error:
    raise explained(error) from error

KEEP_S: Final = 24 * 3600
SYSTEM: Final = "chasquimq"
ATTEMPT: Final = "messaging.chasquimq.job.attempt"
OUTCOME: Final = "messaging.chasquimq.job.outcome"
DUE: Final = "due_ms"
"""When the job is due, beside the fields of the propagator."""


class Tracing:
    """Traces the jobs of *jobs*: create it once, before the first add and before a worker.

    Spans are named and attributed as the conventions for messaging say. *tracer_provider* and
    *propagator* are the global ones by default. *keep_s*: for how long after it was due a job can
    still be connected to its add.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
        keep_s: int = KEEP_S,
    ) -> None:
        """Raise `InvalidFormat` if *jobs* is traced already."""
        if isinstance(jobs.connections.make_queue, partial):
            raise InvalidFormat("jobs", jobs, "traced once")
        self._jobs, self._keep_s = jobs, keep_s
        self._tracer = trace.get_tracer("tambomq.jobs", tracer_provider=tracer_provider)
        self._propagator = propagator or propagate.get_global_textmap()
        jobs.connections.make_queue = partial(TracedQueue, self)
        jobs.connections.make_blocking = partial(TracedBlockingQueue, self)
        # Outermost: the time of other middleware belongs to the run.
        jobs.middlewares.insert(0, self.middleware)

    # ── adds ─────────────────────────────────────────────────────────────────

    @contextmanager
    def adding(self, queue: str, names: list[str], ids: list[str]) -> Iterator[Span]:
        """Make the span of an add current."""
        attributes = self._attributes(queue, "add", "send")
        if len(ids) == 1:
            attributes |= _job_attributes(names[0], ids[0])
        else:
            attributes["messaging.batch.message_count"] = len(ids)
        with self._tracer.start_as_current_span(
            f"add {queue}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type_of(error))
                raise

    def carrier(self, due_ms: int | None) -> tuple[bytes, int] | None:
        """Return the current context as it is stored, and for how many seconds."""
        fields: dict[str, Any] = {}
        self._propagator.inject(fields)
        if not fields:
            return None
        now_ms = time_ns() // 1_000_000
        delay_s = 0
        if due_ms is not None:
            fields[DUE] = due_ms
            delay_s = max(0, due_ms - now_ms) // 1000
        return json.dumps(fields, separators=(",", ":")).encode(), self._keep_s + delay_s

    # ── runs ─────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def middleware(self, context: Context) -> AsyncIterator[None]:
        """Make the span of a run current, as a child of the add's."""
        fields = await self._fields(context)
        parent = self._propagator.extract(fields)
        self._record_wait(context, fields, parent)
        attributes = self._attributes(context.queue, "run", "process")
        attributes |= _job_attributes(context.name, context.job_id)
        attributes[ATTEMPT] = context.attempt
        with self._tracer.start_as_current_span(
            f"run {context.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _record_failure(span, context, error)
                raise
            if context.is_cancelled:
                # Redis has ended the job already: what the function returned does not count.
                span.set_attribute(OUTCOME, "cancelled")
        if fields:
            # Another add may use the same job id later. The TTL sees to it if this fails.
            with suppress(TamboError):
                await forget(self._jobs.queue, context.job_id)

    async def _fields(self, context: Context) -> dict[str, Any]:
        try:
            stored = await read(self._jobs.queue, context.job_id)
            found = json.loads(stored or b"{}")
        except (TamboError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _record_wait(self, context: Context, fields: dict[str, Any], parent: TraceContext) -> None:
        now_ns = time_ns()
        due_ms = fields.get(DUE) if context.attempt == 1 else None
        since_ms: int | None = due_ms if isinstance(due_ms, int) else context.waits_since_ms
        if since_ms is None:
            return
        attributes = self._attributes(context.queue, "wait", None)
        attributes |= _job_attributes(context.name, context.job_id)
        attributes[ATTEMPT] = context.attempt
        span = self._tracer.start_span(
            f"wait {context.queue}",
            context=parent,
            attributes=attributes,
            # Two clocks: a span must not end before it begins.
            start_time=min(since_ms * 1_000_000, now_ns),
        )
        span.end(now_ns)

    def _attributes(self, queue: str, operation: str, kind: str | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": queue,
            "messaging.operation.name": operation,
        }
        if kind is not None:
            attributes["messaging.operation.type"] = kind
        return attributes


def _job_attributes(name: str, id: str) -> dict[str, Any]:
    return {"messaging.message.id": id, "messaging.chasquimq.job.name": name}


def _record_failure(span: Span, context: Context, error: BaseException) -> None:
    if isinstance(error, RetryIn | CancelJob):
        # Decisions of the function, and no failures.
        outcome = "retried" if isinstance(error, RetryIn) else "cancelled"
        span.set_attribute(OUTCOME, outcome)
        return
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        # The worker has interrupted it: the job was cancelled, or the worker ends.
        cancelled = context._job.is_cancelled  # noqa: SLF001  (not whether a thread was left behind)
        span.set_attribute(OUTCOME, "cancelled" if cancelled else "returned")
        return
    span.set_attribute("error.type", type_of(error))
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, text_of(error)))
