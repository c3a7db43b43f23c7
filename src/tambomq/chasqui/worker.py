"""Runs a handler for each job of a ChasquiMQ queue.

A worker is a few parts that know one thing each: `Intake` reads, `Floor` runs
handlers, `Outbox` tells the server what became of jobs, `Hand` keeps from
others what is held. This file puts them together, and ends them in order.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tambomq.chasqui import worker_ops
from tambomq.chasqui.address import CredentialProvider, endpoint_of
from tambomq.chasqui.floor import Floor, Handler, check_handler
from tambomq.chasqui.hand import Hand, Lease
from tambomq.chasqui.intake import Intake
from tambomq.chasqui.job import MAX_ATTEMPTS, BackoffLike
from tambomq.chasqui.joining import make_group
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.lead_ops import Office
from tambomq.chasqui.leader import Leader
from tambomq.chasqui.ops import EVENTS_CAP, MAX_STREAM_LEN, OURS
from tambomq.chasqui.options import duties, pace, result_ttl, whole_or
from tambomq.chasqui.outbox import Outbox, WorkerStats
from tambomq.chasqui.promoter import Promoter
from tambomq.chasqui.scheduler import TICK_MS, Scheduler
from tambomq.chasqui.worker_ops import Seat
from tambomq.errors import TamboError
from tambomq.journal.recording import Bounds, bounds_of
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import PATIENCE_S, URL, Endpoint, check_patience
from tambomq.store.features import features
from tambomq.store.heartbeat import check_how

log = logging.getLogger(__name__)

# How long an ending worker tries to tell the server what became of its jobs.
LAST_WORDS_S = 2.0


class Worker:
    """Takes jobs off a queue and runs *handler* for each, *concurrency* at a time.

    A handler is a coroutine function, or a plain one, which runs in a thread. What
    it returns is kept for *result_ttl_ms* if *store_results*. When it raises, the job
    runs again after a while, until it has run *max_attempts* times; then, or at once
    after `UnrecoverableError`, it goes to the dead-letter queue.

    A job stays this worker's while it runs, renewed by a ``"thread"``, or by a
    ``"process"`` if handlers hold the interpreter's lock for longer than
    *claim_min_idle_ms*; after so long a silence others take it over. *limiter*:
    ``(jobs, ms)`` that may start over all workers of the queue. *grace_s*: how
    long `close` lets handlers go on. *journal*: while it leads what recurs, each
    job that it makes is recorded, with its data, in the queue's journal. `run` waits
    for a server that is away as long as it takes, *patience_s* seconds at a time.
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
        journal: bool | Bounds = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; nothing is connected, and no consumer id drawn, before `run`."""
        self._keys, self._handler = Keys(queue_name), check_handler(handler)
        self._endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._group, self._consumer_id = group, consumer_id
        self._pace = pace(concurrency, read_count, read_block_ms, claim_min_idle_ms, limiter)
        ttl_ms = result_ttl(result_ttl_ms)
        self._duties = duties(
            max_attempts,
            max_payload_bytes,
            backoff,
            dialect,
            dlq_max_stream_len,
            ttl_ms if store_results else None,
        )
        self._cap = whole_or(MAX_STREAM_LEN, "max_stream_len", max_stream_len, least=1)
        self._tick_ms = whole_or(TICK_MS, "scheduler_tick_ms", scheduler_tick_ms, least=1)
        self._promotes, self._schedules = delayed_enabled, run_scheduler
        self._events_cap, self._journal = EVENTS_CAP if events_enabled else 0, bounds_of(journal)
        self._heartbeat, self._grace_s = check_how(heartbeat), grace_s
        self._patience_s = check_patience(patience_s)
        self._running: asyncio.Task[None] | None = None
        self._intake: Intake | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed, self._pid = False, 0
        self.stats = WorkerStats()
        """What it has done so far."""

    @property
    def name(self) -> str:
        """The queue's."""
        return self._keys.queue

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._running is not None and not self._running.done()

    @property
    def is_closed(self) -> bool:
        """Whether it was told to end."""
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        if self._running is not None:
            with suppress(asyncio.CancelledError, TamboError):
                await self._running

    # ── life ─────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Work until `close`; survives any absence of the server.

        Cancelled, it gives running jobs back and ends at once.
        """
        if self._running is None or self._pid != os.getpid():
            # A fork of a process that runs this worker has its task too, in a loop of the parent's.
            self._pid = os.getpid()
            self._running = asyncio.ensure_future(self._work())
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait([self._running])
            raise

    def run_forever(self) -> None:
        """Work until SIGINT or SIGTERM; a second one gives running jobs back at once."""
        with (
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
            suppress(asyncio.CancelledError),
        ):
            runner.run(self._run_until_signalled())

    async def close(self) -> None:
        """Let `run` end: read nothing more, finish what runs. From any task or thread."""
        self._closed = True
        if self._loop is not None and self._intake is not None:
            # The loop may have closed meanwhile; then there is nothing to end.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._intake.stop)

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(self.run())

        def on_signal() -> None:
            if self._closed:
                running.cancel()
            self._ending = asyncio.ensure_future(self.close())

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        await running

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        reads, asks = (AsyncStore(self._endpoint, patience_s=self._patience_s) for _ in range(2))
        try:
            seat = await self._sit_down(asks)
            if not self._closed:
                await self._serve(seat, reads, asks)
        finally:
            await reads.close()
            await asks.close()

    async def _sit_down(self, store: AsyncStore) -> Seat:
        """Learn what the server can do, and join the group."""
        # Drawn here and not where the object is built: processes that are forked from one worker,
        # or get a pickled copy of it, would be one consumer and take over each other's jobs.
        consumer = self._consumer_id or f"{OURS}{uuid.uuid4()}"
        while True:
            try:
                has = await store.follow(features())
                seat = Seat(self._keys, self._group, consumer, has, self._events_cap)
                if not self._closed:
                    await make_group(store, seat)
                return seat
            except TamboError as error:
                log.warning("cannot join queue %r yet: %s", self.name, error)
                if self._closed:
                    raise
                await asyncio.sleep(0.5)

    async def _serve(self, seat: Seat, reads: AsyncStore, asks: AsyncStore) -> None:
        idle_ms = self._pace.idle_ms
        lease = Lease(self._endpoint, self.name, self._group, seat.consumer, idle_ms)
        hand = Hand(self._heartbeat, lease)
        outbox = Outbox(asks, seat, hand, self.stats)
        floor = Floor(self._handler, self._duties, seat, asks, hand, outbox, self.stats)
        intake = Intake((reads, asks), seat, self._pace, hand, floor)
        floor.on_finished = intake.finished
        self._intake = intake
        leaders = self._leaders(asks, seat.consumer)
        leading = [asyncio.create_task(leader.run()) for leader in leaders]
        reading = asyncio.create_task(intake.run())
        floor.start(self._pace.concurrency)
        try:
            if self._closed:
                intake.stop()
            await intake.stopped()
            await asyncio.gather(intake.unblock(), reading)
            await floor.shed()
            await floor.finish(self._grace_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_s):
                    await outbox.drain()
        finally:
            for leader in leaders:
                leader.close()
            # Also when this is cancelled: what a read under way brings is to be given back.
            intake.stop()
            unblocking = asyncio.create_task(intake.unblock())
            await floor.close()
            await self._last_words(outbox, [reading, unblocking, *leading])
            await floor.shed()
            await asyncio.to_thread(hand.close)
            with suppress(TamboError):
                await asks.run(worker_ops.leave(seat))

    def _leaders(self, store: AsyncStore, consumer: str) -> list[Leader]:
        office = Office(
            self._keys,
            consumer if consumer.startswith(OURS) else f"{OURS}{consumer}",
            cap=self._cap,
            dlq_cap=self._duties.dlq_cap,
            events_cap=self._events_cap,
            journal=self._journal,
        )
        leaders: list[Leader] = []
        if self._promotes:
            leaders.append(Promoter(store, office))
        if self._schedules:
            leaders.append(Scheduler(store, office, self._tick_ms))
        return leaders

    async def _last_words(self, outbox: Outbox, tasks: list[asyncio.Task[None]]) -> None:
        """Tell the server what is left to tell, unless it takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await outbox.drain()
                await asyncio.gather(*tasks, return_exceptions=True)
        outbox.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  (not installed everywhere)
    except ImportError:
        return None
    return uvloop.new_event_loop
