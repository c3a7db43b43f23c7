"""Where handlers run: a fixed number of runners, and the jobs that wait for one.

A runner takes a job, calls the handler and says what became of it. No task or
future is made for a job, so that a short one costs little more than its handler.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from time import perf_counter_ns
from typing import Any, TypeAlias

from tambomq.chasqui import worker_ops
from tambomq.chasqui.hand import Hand
from tambomq.chasqui.job import Envelope, Job, make_job
from tambomq.chasqui.keys import fits_page
from tambomq.chasqui.options import Duties
from tambomq.chasqui.outbox import Outbox, Parcel, WorkerStats
from tambomq.chasqui.packing import decode_payload, encode_payload
from tambomq.chasqui.verdict import Death, after_failure, arrival
from tambomq.chasqui.worker_ops import Delivery, Ran, Seat
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, TamboError
from tambomq.failures import FailureLog, headline, text_of
from tambomq.store.aio import AsyncStore

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Job], Any] | Callable[[Job], Awaitable[Any]]

# Handlers that never wait would keep the loop from reading and telling.
TURN_NS = 500_000


class Floor:
    """Runs the handler of one worker, *concurrency* times at once."""

    def __init__(
        self,
        handler: Handler,
        duties: Duties,
        seat: Seat,
        store: AsyncStore,
        hand: Hand,
        outbox: Outbox,
        stats: WorkerStats,
    ) -> None:
        """Nothing runs before `start`."""
        self._handler, self._duties, self._seat = handler, duties, seat
        self._store, self._hand, self._outbox, self._stats = store, hand, outbox, stats
        self.on_finished: Callable[[], None] = lambda: None
        """Called after each run."""
        self._is_async = is_async(handler)
        self._inbox: deque[Delivery] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._paused, self._rousing, self._ended = False, False, asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        self._failures = FailureLog(log, "job", seat.keys.queue, self._loop.call_later)
        self.running = 0
        """Jobs that run."""

    @property
    def queued(self) -> int:
        """Jobs that wait for a runner."""
        return len(self._inbox)

    def start(self, concurrency: int) -> None:
        """Let *concurrency* runners take jobs."""
        if not self._is_async:
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="chasqui-handler")
        self._tasks = [self._loop.create_task(self._run()) for _ in range(concurrency)]

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        """Run *deliveries*, as soon as may be."""
        self._inbox += deliveries
        self._stats.received += len(deliveries)
        self._rouse()

    def hold_on(self, *, paused: bool) -> None:
        """Start no job while the queue is *paused*."""
        self._paused = paused
        self._rouse()

    async def shed(self) -> None:
        """Let others have what is queued."""
        back = [(each.entry, each.deliveries) for each in self._inbox]
        self._inbox.clear()
        await self.give_back(back)

    async def give_back(self, entries: Sequence[tuple[str, int]]) -> None:
        """Let others have *entries* at once; if they cannot be told, when the lease is over."""
        if entries:
            self._hand.let_go([entry for entry, _ in entries])
            with suppress(TamboError):
                call = worker_ops.give_back(self._seat, entries, self._hand.idle_ms)
                self._stats.returned += await self._store.run(call)

    async def finish(self, within_s: float) -> None:
        """Let running jobs end; after *within_s* seconds, cancel them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.running:
                    self._ended.clear()
                    await self._ended.wait()
        await self.close()

    async def close(self) -> None:
        """Cancel what runs; a plain function goes on in its thread, but nobody waits for it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._failures.flush()

    # ── runners ──────────────────────────────────────────────────────────────

    def _rouse(self) -> None:
        """Wake as many runners as have something to do.

        Handlers that never wait keep one busy, and more would only take turns. For each that
        waits two more are woken, so that a hundred are at work after seven turns of the loop.
        """
        self._rousing = False
        awake = len(self._tasks) - len(self._idle)
        wanted = min(len(self._inbox), 2 * self.running + 1 - awake, len(self._idle))
        if not self._paused:
            for _ in range(wanted):
                waiter = self._idle.popleft()
                if not waiter.done():
                    waiter.set_result(None)

    async def _run(self) -> None:
        inbox, since = self._inbox, perf_counter_ns()
        while True:
            if not inbox or self._paused:
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
                since = perf_counter_ns()
                continue
            delivery = inbox.popleft()
            if inbox and self._idle and not self._rousing:
                self._rousing = True
                self._loop.call_soon(self._rouse)
            self.running += 1
            try:
                await self._handle(delivery)
            finally:
                self.running -= 1
                self._ended.set()
                self.on_finished()
            if perf_counter_ns() - since > TURN_NS:
                await asyncio.sleep(0)
                since = perf_counter_ns()

    async def _handle(self, delivery: Delivery) -> None:
        found = arrival(delivery.fields, delivery.deliveries, self._duties.rules)
        if isinstance(found, Death):
            self._bury(delivery.entry, found, None)
            return
        envelope, name = found
        entry, id, attempt = delivery.entry, envelope.id, envelope.attempt + 1
        self._outbox.begin(id, name, attempt)
        began = perf_counter_ns()
        try:
            data = decode_payload(envelope.payload)
            job = make_job(id, name, data, envelope.attempt, envelope.created_at_ms, self)
            if self._is_async:
                value = await self._handler(job)
            else:
                value = await self._in_thread(job)
            value = self._worth_keeping(value)
        except CancelledError as error:
            # Ours only if this very task is being cancelled; a handler may raise it by itself.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                await self._abandon(delivery)
                raise
            self._failed(entry, envelope, name, error, began)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises, also sys.exit)
            self._failed(entry, envelope, name, error, began)
        else:
            took_us = (perf_counter_ns() - began) // 1000
            if value is None:
                self._outbox.end(entry, id, name, attempt, took_us)
            else:
                ran = Ran(entry, id, name, attempt, took_us)
                ttl_s = self._duties.result_ttl_s or 0
                call = worker_ops.done(self._seat, ran, value, ttl_s, now_ms())
                self._outbox.post(Parcel(entry, call, "completed"))

    async def _in_thread(self, job: Job) -> Any:
        value = await self._loop.run_in_executor(self._threads, _called, self._handler, job)
        # A plain function may stand around a coroutine function, as a decorator does.
        return await value if isawaitable(value) else value

    def _worth_keeping(self, value: Any) -> bytes | None:
        """What a handler returned as bytes, if it is kept; raises if it cannot be."""
        if value is None or self._duties.result_ttl_s is None:
            return None
        return encode_payload(value)

    def _failed(
        self, entry: str, envelope: Envelope, name: str, error: BaseException, began: int
    ) -> None:
        took_us = (perf_counter_ns() - began) // 1000
        self._stats.failed += 1
        self._failures.failed(envelope.id, envelope.attempt + 1, error)
        verdict = after_failure(envelope, name, error, self._duties.rules, random.randrange)
        if isinstance(verdict, Death):
            self._bury(entry, verdict, took_us)
            return
        ran = Ran(entry, envelope.id, name, envelope.attempt + 1, took_us)
        dialect = self._duties.dialect if fits_page(name) else "engine"
        reason, wait_ms, now = text_of(error), verdict.wait_ms, now_ms()

        def retry(dialect: str) -> Any:
            return worker_ops.retry(self._seat, ran, verdict.body, wait_ms, reason, dialect, now)

        self._outbox.post(Parcel(entry, retry(dialect), "retried", lambda: retry("engine")))

    def _bury(self, entry: str, death: Death, took_us: int | None) -> None:
        queue = self._seat.keys.queue
        told = headline(death.reason, headline(death.error_type, death.detail))
        log.error(
            "job %r of queue %r is dead after %d runs: %s", death.id, queue, death.attempt, told
        )
        call = worker_ops.bury(self._seat, entry, death, self._duties.dlq_cap, now_ms(), took_us)
        self._outbox.post(Parcel(entry, call, "buried"))

    async def _abandon(self, delivery: Delivery) -> None:
        """Let others run a job that was cancelled here; one in a thread still runs."""
        if self._is_async:
            with suppress(CancelledError):
                await self.give_back([(delivery.entry, delivery.deliveries)])
        else:
            self._hand.let_go((delivery.entry,))

    # ── what a job can do in its handler ─────────────────────────────────────

    def update_progress(self, id: str, percent: int, name: str) -> Any:
        """Tell how far job *id* has come: awaited by a coroutine, at once for a plain function."""
        return self._on_the_loop(self._tell_progress(id, percent, name))

    def log(self, id: str, line: str) -> Any:
        """Keep a line of job *id*'s log: awaited by a coroutine, at once for a plain function."""
        return self._on_the_loop(self._keep_line(id, line))

    def _on_the_loop(self, told: Coroutine[Any, Any, None]) -> Any:
        if threading.get_ident() == self._thread:
            return told
        return asyncio.run_coroutine_threadsafe(told, self._loop).result()

    async def _keep_line(self, id: str, line: str) -> None:
        calls = worker_ops.log_line(self._seat.keys, id, line, self._duties.result_ttl_s)
        await self._store.run_all(calls)

    async def _tell_progress(self, id: str, percent: int, name: str) -> None:
        ttl_s, fields = self._duties.result_ttl_s, ("n", name) if name else ()
        calls: list[Any] = [worker_ops.set_progress(self._seat.keys, id, percent, ttl_s)]
        if self._seat.events_cap:
            told = (now_ms(), "progress", id, *fields, "progress", percent)
            calls.append(worker_ops.emit(self._seat, *told))
        await self._store.run_all(calls)


def check_handler(handler: Handler) -> Handler:
    """Return *handler* if it can be called; raise `InvalidFormat` if not."""
    if not callable(handler):
        raise InvalidFormat("handler", handler, "a function")
    return handler


def is_async(handler: Handler) -> bool:
    """Whether *handler* is to be awaited; an object with an async ``__call__`` is."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def _called(handler: Handler, job: Job) -> Any:
    try:
        return handler(job)
    except StopIteration as error:
        # No future can carry it: who waits for one would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from error
