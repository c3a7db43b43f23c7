"""The middle stage of a worker: runs handlers, a fixed number at a time, and queues jobs for them.

The fetcher hands in deliveries. A runner takes one, calls the handler and hands the outcome to the
settler. A coroutine function has no task or future per job, so that a short job costs little more
than its handler; a plain function has the future of its thread.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable
from time import perf_counter_ns
from typing import Any

from tambomq.chasqui.decisions import DeadLettered, admit_delivery
from tambomq.chasqui.job import Job, make_job
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.chasqui.options import RunOptions
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.chasqui.worker.handler import Handler, call_in_thread, is_async
from tambomq.chasqui.worker.in_flight import InFlight
from tambomq.chasqui.worker.job_reporter import JobReporter
from tambomq.chasqui.worker.observed_runs import Run
from tambomq.chasqui.worker.outcomes import OutcomeReporter
from tambomq.chasqui.worker.runner_cancellation import RunnerCancellation
from tambomq.chasqui.worker.settler import Settler
from tambomq.errors import TamboError
from tambomq.log import with_fields
from tambomq.runtime.forks import end_copy, forks
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

# A runner whose handlers never wait yields to the loop after this time, so that the fetcher and
# the settler get their turn.
MAX_TURN_NS = 500_000


class HandlerPool:
    """Runs the handler of one worker for each delivery that it accepts."""

    def __init__(
        self,
        handler: Handler,
        options: RunOptions,
        context: ConsumerContext,
        store: AsyncStore,
        in_flight: InFlight,
        settler: Settler,
        outcomes: OutcomeReporter,
        on_finished: Callable[[], None],
    ) -> None:
        """Nothing runs before `start`; *on_finished* is called after each run."""
        self._handler, self._options, self._context = handler, options, context
        self._store, self._in_flight, self._settler = store, in_flight, settler
        self._outcomes, self._on_finished = outcomes, on_finished
        self._stats, self._is_observed = settler.stats, outcomes.is_observed
        self._keeps = options.result_ttl_s is not None
        self._cancel_reasons = outcomes.cancel_reasons
        self._cancellation = RunnerCancellation()
        self._interruptible = self._cancellation.runners
        self.interrupt = self._cancellation.interrupt
        """Cancels an entry's coroutine handler. One in a thread must check `Job.is_cancelled`."""
        self._is_async = is_async(handler)
        self._call: Callable[[Job], Any] = handler if self._is_async else self._in_thread
        self._queue: deque[Delivery] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._paused, self._wake_scheduled, self._closing = False, False, False
        self._run_ended = asyncio.Event()
        self._loop, self._forks = asyncio.get_running_loop(), forks.count
        self._reporter = JobReporter(store, context, options.result_ttl_s, self._cancel_reasons)
        self._runners: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._log = with_fields(log, **context.log_fields)
        self.running = 0
        """Jobs whose handler is running."""

    @property
    def queued(self) -> int:
        """Jobs that wait for a runner."""
        return len(self._queue)

    @property
    def is_busy(self) -> bool:
        """Whether every runner has a job."""
        return self.running >= self._options.concurrency

    def start(self) -> None:
        """Start the runners."""
        concurrency = self._options.concurrency
        if not self._is_async:
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="chasqui-handler")
        self._runners = [self._loop.create_task(self._run()) for _ in range(concurrency)]

    # ── called by the fetcher ────────────────────────────────────────────────

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Queue *deliveries*."""
        self._queue += deliveries
        self._stats.received += len(deliveries)
        self._wake_runners()

    def set_paused(self, *, paused: bool) -> None:
        """Start no job while *paused*; what runs goes on."""
        self._paused = paused
        self._wake_runners()

    async def release_queued(self) -> None:
        """Give back, in Redis, all jobs that wait for a runner: other workers can run them."""
        queued = [(each.entry, each.deliveries) for each in self._queue]
        self._queue.clear()
        await self._give_back(queued)

    # ── called by the worker when it ends ────────────────────────────────────

    async def finish(self, within_s: float) -> None:
        """Wait for running jobs; after *within_s* seconds, cancel them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.running:
                    self._run_ended.clear()
                    await self._run_ended.wait()
        await self.close()

    async def close(self) -> None:
        """Cancel what runs. A plain function cannot be cancelled: its thread is left behind."""
        # A handler may catch the cancellation and return: then its runner must end by itself.
        self._closing = self._cancellation.is_closing = True
        for runner in self._runners:
            runner.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._outcomes.flush()

    # ── runners ──────────────────────────────────────────────────────────────

    def _wake_runners(self) -> None:
        """Wake idle runners for queued jobs, a few at first.

        Twice as many runners as handlers run, plus one, are kept awake. If handlers never wait, one
        runner does all the work: more would only take turns. If they wait, the number doubles with
        each turn of the loop: after seven turns, a hundred are awake.
        """
        self._wake_scheduled = False
        awake = len(self._runners) - len(self._idle)
        wanted = min(len(self._queue), 2 * self.running + 1 - awake, len(self._idle))
        if not self._paused:
            for _ in range(wanted):
                waiter = self._idle.popleft()
                if not waiter.done():
                    waiter.set_result(None)

    async def _run(self) -> None:
        while not self._closing:
            try:
                await self._take_jobs()
            except CancelledError:
                # A handler may have cancelled its own task, and returned before that took effect.
                if self._cancellation.is_worker_ending:
                    raise
                self._cancellation.undo()
                for waiter in [each for each in self._idle if each.cancelled()]:
                    self._idle.remove(waiter)

    async def _take_jobs(self) -> None:
        queue, since = self._queue, perf_counter_ns()
        runner = asyncio.current_task() if self._is_async else None
        interrupted = self._cancellation.interrupted
        while not self._closing:
            if not queue or self._paused:
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
                since = perf_counter_ns()
                continue
            delivery = queue.popleft()
            if queue and self._idle and not self._wake_scheduled:
                self._wake_scheduled = True
                self._loop.call_soon(self._wake_runners)
            self.running += 1
            if runner is not None:
                self._interruptible[delivery.entry] = runner
            try:
                await self._handle(delivery)
            except Exception:  # noqa: BLE001  (see the comment)
                # Not an error of the handler or of Redis, but for example of a log handler that the
                # user installed. The runner must go on; the job is redelivered when its lease ends.
                self._in_flight.release((delivery.entry,))
                self._log.exception(
                    "cannot handle entry %r of queue %r; it is delivered again in %d ms",
                    *(delivery.entry, self._context.keys.queue, self._in_flight.idle_ms),
                )
            finally:
                self._interruptible.pop(delivery.entry, None)
                if interrupted:
                    self._cancellation.undo(delivery.entry)
                self.running -= 1
                self._run_ended.set()
                self._on_finished()
            if perf_counter_ns() - since > MAX_TURN_NS:
                self._cancellation.undo()
                await asyncio.sleep(0)
                since = perf_counter_ns()

    async def _handle(self, delivery: Delivery) -> None:
        admitted = admit_delivery(delivery.fields, delivery.deliveries, self._options.retry)
        if isinstance(admitted, DeadLettered):
            self._outcomes.bury(delivery.entry, admitted, None)
            return
        envelope, name = admitted
        entry, id, attempt = delivery.entry, envelope.id, envelope.attempt + 1
        if self._cancel_reasons and entry in self._cancel_reasons:
            self._outcomes.drop(entry, id)
            return
        self._settler.started(id, name, attempt)
        waited_ms = self._outcomes.announce(entry, id, name, attempt) if self._is_observed else 0
        started_ns = perf_counter_ns()
        try:
            data = decode_payload(envelope.payload)
            made_ms = envelope.created_at_ms
            job = make_job(id, name, data, envelope.attempt, made_ms, self._reporter, None, entry)
            value = await self._call(job)
            result = None if value is None or not self._keeps else encode_payload(value)
        except CancelledError as error:
            run = Run(entry, envelope, name, started_ns, waited_ms)
            if await self._give_back_if_ending(delivery, run):
                raise
            self._on_raised(run, error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises, also sys.exit)
            self._on_raised(Run(entry, envelope, name, started_ns, waited_ms), error)
        else:
            # The handler forked, and this is the child: it must not go on as a second worker.
            if forks.count != self._forks:
                end_copy(f"{self._context.keys.queue} {name} {id}")
            took_us = (perf_counter_ns() - started_ns) // 1000
            if result is None and not self._is_observed and not self._cancel_reasons:
                self._settler.completed(entry, id, name, attempt, took_us)
            else:
                run = Run(entry, envelope, name, started_ns, waited_ms)
                self._outcomes.returned(run, result, took_us)

    def _on_raised(self, run: Run, error: BaseException) -> None:
        if forks.count != self._forks:
            end_copy(f"{self._context.keys.queue} {run.name} {run.envelope.id}", error)
        self._outcomes.failed(run, error)

    async def _give_back_if_ending(self, delivery: Delivery, run: Run) -> bool:
        """Give the job back if it was cancelled because the worker ends; return whether it was.

        If not, the handler raised `CancelledError` or cancelled its own task, or its job was
        cancelled.
        """
        cancellation = self._cancellation
        if delivery.entry in cancellation.interrupted or not cancellation.is_worker_ending:
            cancellation.undo()
            return False
        self._outcomes.given_back(run)
        await self._abandon(delivery, run.envelope.id)
        return True

    async def _in_thread(self, job: Job) -> Any:
        value = await self._loop.run_in_executor(self._threads, call_in_thread, self._handler, job)
        # A plain function may wrap a coroutine function, as decorators do.
        if not isawaitable(value):
            return value
        entry = job._entry  # noqa: SLF001  (ours: the pool has made the job)
        if entry not in self._cancel_reasons and (runner := asyncio.current_task()) is not None:
            self._interruptible[entry] = runner
        return await value

    async def _abandon(self, delivery: Delivery, id: str) -> None:
        """Give back a job whose handler was cancelled because the worker ends, if it has stopped.

        A handler in a thread still runs, so its job is not given back: the lease has to run out.
        The same holds for jobs that the handler runs elsewhere: its ``still_runs(id)`` is true.
        """
        still_runs = getattr(self._handler, "still_runs", None)
        if self._is_async and not (still_runs is not None and still_runs(id)):
            with suppress(CancelledError):
                await self._give_back([(delivery.entry, delivery.deliveries)])
        else:
            self._in_flight.release((delivery.entry,))

    async def _give_back(self, entries: Sequence[tuple[str, int]]) -> None:
        """Release *entries* at once; if Redis cannot be reached, their leases run out."""
        if entries:
            self._in_flight.release([entry for entry, _ in entries])
            with suppress(TamboError):
                call = worker_ops.give_back(self._context, entries, self._in_flight.idle_ms)
                self._stats.returned += await self._store.run(call)
