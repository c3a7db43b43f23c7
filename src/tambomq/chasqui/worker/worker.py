"""A worker: takes jobs off a ChasquiMQ queue and runs a handler for each.

Jobs flow through three stages; `InFlight` lists the stream entries that the worker holds::

      stream                                              ack, retry, dead-letter
        │ XREADGROUP                                                 ▲
        ▼            deliveries                  outcomes            │
     Fetcher ──────────────────► HandlerPool ────────────────────► Settler
      ▲   │                           │                              │
      │   │ add                       │                      release │
      │   └───────► InFlight ◄────────┼──────────────────────────────┘
      │                │              │
      │       released │              │ run finished
      │                ▼              ▼
      └────────────── PrefetchWindow ─┘
        fetch more

A stage calls the next one. Only backpressure goes the other way: runs that finish and entries that
are released open the `PrefetchWindow`, which wakes the fetcher. A heartbeat outside the event loop
renews what is `InFlight`. Not drawn: the pool releases entries of jobs that it gives back or
abandons, and `OutcomeReporter` those of cancelled jobs.
`CancellationListener` listens for jobs that were cancelled, and makes the pool stop their handlers.
`Worker._process` builds the parts, and ends them in the order of the flow.

Beside them a worker runs the leaders of its queue, `Promoter` and `Scheduler`, if it is elected.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from tambomq.chasqui.endpoint import CredentialProvider, endpoint_of
from tambomq.chasqui.job import MAX_ATTEMPTS, BackoffLike
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.leader.leader import Leader
from tambomq.chasqui.leader.promoter import Promoter
from tambomq.chasqui.leader.scheduler import TICK_MS, Scheduler
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import CONSUMER_PREFIX, EVENTS_CAP, MAX_STREAM_LEN
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.options import fetch_options, run_options, whole_or
from tambomq.chasqui.worker.cancellations import CancellationListener
from tambomq.chasqui.worker.consumer_group import join_group
from tambomq.chasqui.worker.control import WorkerControl
from tambomq.chasqui.worker.fetcher import Fetcher
from tambomq.chasqui.worker.handler import Handler, check_handler
from tambomq.chasqui.worker.handler_pool import HandlerPool
from tambomq.chasqui.worker.in_flight import EntryLease, InFlight
from tambomq.chasqui.worker.observed_runs import observed
from tambomq.chasqui.worker.outcomes import OutcomeReporter
from tambomq.chasqui.worker.prefetch import PrefetchWindow
from tambomq.chasqui.worker.settler import Settler
from tambomq.errors import TamboError
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.runtime.heartbeat import check_how
from tambomq.runtime.signals import run_until_signalled
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import PATIENCE_S, URL, Endpoint, check_patience

# After `grace_s` a worker tries once more, for this long, to settle its last jobs.
FINAL_FLUSH_S = 2.0


class Worker(WorkerControl):
    """Takes jobs off a queue and runs *handler* for each, *concurrency* at a time.

    A handler is a coroutine function, or a plain one, which runs in a thread. What it returns is
    kept for *result_ttl_ms* if *store_results*. When it raises, the job runs again after a backoff,
    *max_attempts* times in all; then, or at once after `UnrecoverableError`, it goes to the
    dead-letter queue.

    A job in flight is leased for *claim_min_idle_ms*: other workers claim its pending entry once it
    has been idle for that long. *heartbeat* renews it: a ``"thread"``, or a ``"process"`` if
    handlers may hold the interpreter's lock for longer than a lease; `None`: nothing renews it.
    *limiter*, ``(jobs, ms)``: how many jobs may start in how many milliseconds, over all workers of
    the queue. *grace_s*: how long `run` waits for running handlers after `close`, and then as long
    again for Redis to accept their outcomes. *journal*: while this worker is the queue's scheduler,
    each job that it creates is recorded, with its data, in the queue's journal.
    `run` never gives up on an unreachable server; each attempt lasts *patience_s* seconds at most.
    """

    def __init__(  # noqa: PLR0913  (options, all by keyword)
        self,
        queue_name: str,
        handler: Handler,
        *,
        redis_url: str | Endpoint = URL,
        tls: bool = False,
        concurrency: int = 100,
        max_attempts: int = MAX_ATTEMPTS,
        group: str = GROUP,
        consumer_id: str | None = None,
        read_block_ms: int | None = None,
        read_count: int | None = None,
        claim_min_idle_ms: int | None = None,
        max_payload_bytes: int | None = None,
        max_stream_len: int | None = None,
        dlq_max_stream_len: int | None = None,
        events_enabled: bool = True,
        delayed_enabled: bool = True,
        run_scheduler: bool = True,
        scheduler_tick_ms: int | None = None,
        store_results: bool = False,
        result_ttl_ms: int | None = None,
        credential_provider: CredentialProvider | None = None,
        backoff: BackoffLike | None = None,
        dialect: str = "auto",
        heartbeat: str | None = "thread",
        limiter: tuple[int, int] | None = None,
        grace_s: float = 30.0,
        journal: bool | JournalBounds = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; nothing is connected, and no consumer id drawn, before `run`."""
        super().__init__(Keys(queue_name))
        self._handler = check_handler(handler)
        self._endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._fetch_options = fetch_options(read_count, read_block_ms, claim_min_idle_ms, limiter)
        self._run_options = run_options(
            concurrency,
            max_attempts,
            max_payload_bytes,
            backoff,
            dialect,
            dlq_max_stream_len,
            result_ttl_ms,
            store_results=store_results,
        )
        self._cap = whole_or(MAX_STREAM_LEN, "max_stream_len", max_stream_len, minimum=1)
        self._tick_ms = whole_or(TICK_MS, "scheduler_tick_ms", scheduler_tick_ms, minimum=1)
        self._promotes, self._schedules, self._group = delayed_enabled, run_scheduler, group
        self._events_cap, self._consumer_id = EVENTS_CAP if events_enabled else 0, consumer_id
        self._journal = JournalPolicy.for_queue("chasqui", self._keys.queue, journal)
        self._heartbeat, self._patience_s = check_how(heartbeat), check_patience(patience_s)
        self.grace_s, self._pid = grace_s, 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        if self._running is not None:
            with suppress(asyncio.CancelledError, TamboError):
                await self._running

    # ── running and closing ──────────────────────────────────────────────────

    async def run(self) -> None:
        """Work until `close`; waits out any time in which the server is unreachable.

        If cancelled, it gives running jobs back, except those in threads, and ends.
        """
        if self._running is None or self._pid != os.getpid():
            # In a forked child the task is a copy, of a loop that runs in the parent.
            self._pid = os.getpid()
            self._running = asyncio.ensure_future(self._work())
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait([self._running])
            raise

    def run_forever(self) -> None:
        """Work until SIGINT or SIGTERM; a second one cancels `run`."""
        run_until_signalled(self.run, self.stop, lambda: self._closed)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A blocked read occupies its connection: everything else needs another one.
        read_store = AsyncStore(self._endpoint, patience_s=self._patience_s)
        store = AsyncStore(self._endpoint, patience_s=self._patience_s)
        try:
            # Drawn here and not in the constructor: processes that are forked from one worker, or
            # get a pickled copy of it, would be one consumer and take over each other's jobs.
            consumer = self._consumer_id or f"{CONSUMER_PREFIX}{uuid.uuid4()}"
            context = ConsumerContext(
                self._keys, self._group, consumer, events_cap=self._events_cap
            )
            await join_group(store, context, lambda: self._closed)
            if not self._closed:
                await self._process(context, read_store, store)
        finally:
            await read_store.close()
            await store.close()

    async def _process(
        self, context: ConsumerContext, read_store: AsyncStore, store: AsyncStore
    ) -> None:
        """Build the stages, run them until `close`, and end them in the order of the flow."""
        fetching, running = self._fetch_options, self._run_options
        window = PrefetchWindow(running.concurrency, fetching.read_count)
        lease = EntryLease(
            self._endpoint, self.name, self._group, context.consumer, fetching.idle_ms
        )
        self._report_consumer(lease, reads=True)
        in_flight = self._in_flight = InFlight(lease, self._heartbeat, window.wake)
        cancellations = CancellationListener(store, context, in_flight)
        runs = observed(self.observer, self.name)
        settler = Settler(store, context, in_flight, self.stats, cancellations.among, runs)
        reasons = cancellations.reasons
        outcomes = OutcomeReporter(running, context, settler, in_flight, reasons, runs)
        pool = HandlerPool(
            self._handler,
            running,
            context,
            store,
            in_flight,
            settler,
            outcomes,
            window.on_finished,
        )
        fetcher = Fetcher(read_store, store, context, fetching, window, in_flight, pool)
        listening = asyncio.create_task(cancellations.run(pool.interrupt))
        leaders = self._leaders(store, context.consumer)
        try:
            await self._run_stages(fetcher, pool, settler, leaders, listening)
        finally:
            listening.cancel()
            if runs is not None:
                runs.close()
            await asyncio.to_thread(in_flight.close)
            with suppress(TamboError):
                # Does nothing while the consumer owns entries: deleting it would lose them.
                has_left = await store.run(worker_ops.leave(context))
                self._report_consumer(lease, reads=not has_left)

    async def _run_stages(
        self,
        fetcher: Fetcher,
        pool: HandlerPool,
        settler: Settler,
        leaders: Sequence[Leader],
        listening: asyncio.Task[None],
    ) -> None:
        self._fetcher, self._settler = fetcher, settler
        leading = [asyncio.create_task(leader.run()) for leader in leaders]
        reading = asyncio.create_task(fetcher.run())
        # A task that ends before `close` has failed: the worker ends, rather than seem to work.
        for task in (reading, listening, *leading):
            task.add_done_callback(lambda _: fetcher.stop())
        pool.start()
        try:
            if self._closed:
                fetcher.stop()
            if self._fetching_paused:
                fetcher.pause()
            await fetcher.stopped()
            await asyncio.gather(fetcher.unblock(), reading, return_exceptions=True)
            await pool.release_queued()
            await pool.finish(self.grace_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.grace_s):
                    await settler.drain()
        finally:
            # Also when cancelled: a read under way may still bring entries, to be given back.
            for leader in leaders:
                leader.close()
            fetcher.stop()
            unblocking = asyncio.create_task(fetcher.unblock())
            await pool.close()
            await _flush(settler, [reading, unblocking, *leading])
            await pool.release_queued()
        for task in (reading, listening, *leading):
            if task.done() and not task.cancelled():
                task.result()

    def _leaders(self, store: AsyncStore, consumer: str) -> list[Leader]:
        config = LeaderConfig(
            self._keys,
            consumer if consumer.startswith(CONSUMER_PREFIX) else f"{CONSUMER_PREFIX}{consumer}",
            cap=self._cap,
            dlq_cap=self._run_options.dlq_cap,
            events_cap=self._events_cap,
            journal=self._journal,
        )
        leaders: list[Leader] = []
        if self._promotes:
            leaders.append(Promoter(store, config))
        if self._schedules:
            leaders.append(Scheduler(store, config, self._tick_ms))
        return leaders


async def _flush(settler: Settler, tasks: list[asyncio.Task[None]]) -> None:
    """Settle what is left and wait for *tasks*; cancel what takes longer than `FINAL_FLUSH_S`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FINAL_FLUSH_S):
            await settler.drain()
            await asyncio.gather(*tasks, return_exceptions=True)
    settler.cancel()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
