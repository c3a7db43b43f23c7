"""Queue clients that store the trace context of each add beside the queue, before the job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from tambomq.chasqui.blocking_queue import BlockingQueue
from tambomq.chasqui.job import Job
from tambomq.chasqui.producer.add_options import due_at
from tambomq.chasqui.queue import Queue
from tambomq.clock import now_ms
from tambomq.errors import TamboError
from tambomq.ids import ulid
from tambomq.jobs.telemetry import keys
from tambomq.store.call import Call

if TYPE_CHECKING:
    from tambomq.jobs.telemetry.tracing import Tracing

T = TypeVar("T")


class TracedQueue(Queue):
    """A `Queue` whose adds have spans."""

    def __init__(self, tracing: Tracing, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._tracing = tracing

    async def add(self, name: str, data: Any, **options: Any) -> Job:
        """Add a job; see `Queue.add`."""
        if options.get("repeat") is not None:
            return await super().add(name, data, **options)
        options = _with_id(options)
        with self._tracing.adding(self.name, [name], [options["job_id"]]):
            return await self._after_traces([options], super().add(name, data, **options))

    async def add_unique(self, name: str, data: Any, **options: Any) -> Job:
        """Add a job unless its id is in use; see `Queue.add_unique`."""
        with self._tracing.adding(self.name, [name], [options["job_id"]]):
            return await self._after_traces([options], super().add_unique(name, data, **options))

    async def add_bulk(
        self, jobs: Iterable[dict[str, Any]], *, durable: str | None = None
    ) -> list[Job]:
        """Add jobs in one round trip; see `Queue.add_bulk`."""
        batch = [_with_id(job) for job in jobs]
        if not batch:
            return []
        names, ids = [job["name"] for job in batch], [job["job_id"] for job in batch]
        with self._tracing.adding(self.name, names, ids):
            return await self._after_traces(batch, super().add_bulk(batch, durable=durable))

    async def run_call(self, call: Call[Any]) -> Any:
        """Run a call on the connection of the queue."""
        return await self._server.run(call)

    async def _after_traces(self, batch: list[dict[str, Any]], adding: Awaitable[T]) -> T:
        calls = list(_carried(self._tracing, self.name, batch))
        if not calls:
            return await adding
        # Both go over one connection, in this order and without a wait for the first reply: one
        # turn of the loop puts the contexts on the connection.
        storing = asyncio.ensure_future(self._server.outcomes(calls))
        await asyncio.sleep(0)
        try:
            return await adding
        finally:
            with suppress(TamboError):
                await storing


class TracedBlockingQueue(BlockingQueue):
    """A `BlockingQueue` whose adds have spans."""

    def __init__(self, tracing: Tracing, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._tracing = tracing

    def add(self, name: str, data: Any, **options: Any) -> Job:
        """Add a job; see `Queue.add`."""
        if options.get("repeat") is not None:
            return super().add(name, data, **options)
        options = _with_id(options)
        with self._tracing.adding(self.name, [name], [options["job_id"]]):
            self._store_traces([options])
            return super().add(name, data, **options)

    def add_unique(self, name: str, data: Any, **options: Any) -> Job:
        """Add a job unless its id is in use; see `Queue.add_unique`."""
        with self._tracing.adding(self.name, [name], [options["job_id"]]):
            self._store_traces([options])
            return super().add_unique(name, data, **options)

    def add_bulk(self, jobs: Iterable[dict[str, Any]], *, durable: str | None = None) -> list[Job]:
        """Add jobs in one round trip; see `Queue.add_bulk`."""
        batch = [_with_id(job) for job in jobs]
        if not batch:
            return []
        names, ids = [job["name"] for job in batch], [job["job_id"] for job in batch]
        with self._tracing.adding(self.name, names, ids):
            self._store_traces(batch)
            return super().add_bulk(batch, durable=durable)

    def _store_traces(self, batch: list[dict[str, Any]]) -> None:
        # A trace that cannot be stored must not keep the job from being added.
        self._server.outcomes(list(_carried(self._tracing, self.name, batch)))


async def read(queue: Queue, id: str) -> bytes | None:
    """Return the stored context of job *id*; `None` if there is none."""
    call: Call[Any] = Call("GET", (keys.trace(queue.name, id),), (), _as_is, repeatable=True)
    return await queue.run_call(call) if isinstance(queue, TracedQueue) else None


async def forget(queue: Queue, id: str) -> None:
    """Delete the stored context of job *id*."""
    call: Call[Any] = Call("UNLINK", (keys.trace(queue.name, id),), (), int, repeatable=True)
    if isinstance(queue, TracedQueue):
        await queue.run_call(call)


def _with_id(options: dict[str, Any]) -> dict[str, Any]:
    """Return *options* with a job id: the context is stored under it before the job is."""
    if options.get("job_id") is not None or options.get("repeat") is not None:
        return {"job_id": None, **options}
    return {**options, "job_id": ulid(now_ms())}


def _carried(tracing: Tracing, queue: str, batch: list[dict[str, Any]]) -> Iterator[Call[Any]]:
    """Yield the calls that store the current context for each job of *batch*."""
    for options in batch:
        if options.get("job_id") is None or options.get("repeat") is not None:
            continue
        carrier = tracing.carrier(_due_ms(options))
        if carrier is None:
            return
        value, ttl_s = carrier
        # Of two adds with one id the first adds the job, but a debounced one replaces it.
        when = () if options.get("debounce_s") is not None else ("NX",)
        args = (value, "EX", ttl_s, *when)
        key = keys.trace(queue, options["job_id"])
        yield Call("SET", (key,), args, bool, repeatable=True)


def _due_ms(options: dict[str, Any]) -> int | None:
    delay_ms: float | datetime | None = options.get("delay_ms")
    delay: timedelta | None = options.get("delay")
    if (debounce_s := options.get("debounce_s")) is not None:
        delay_ms = debounce_s * 1000
    return None if delay_ms is None and delay is None else due_at(now_ms(), delay_ms, delay)


def _as_is(reply: Any) -> Any:
    return reply
