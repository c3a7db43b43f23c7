"""Waiting for results, from asyncio: all waits of a queue share one reader of its events."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops.ended_jobs import (
    ENDED,
    EndedJobs,
    JobEnd,
    LookBackLimit,
    first_look_back,
    second_look_back,
)
from tambomq.chasqui.producer.result_wait import (
    BLOCK_MS,
    LINGER_S,
    POLL_EVERY_S,
    RESULT_LAG_S,
    check_wait,
    failed_job,
)
from tambomq.clock import Deadline, backoff_delays
from tambomq.errors import JobCancelled, TamboError
from tambomq.store.aio import AsyncStore


class ResultWaiter:
    """Waits for the results of one queue's jobs."""

    def __init__(self, store: AsyncStore, event_store: AsyncStore, keys: Keys) -> None:
        """Block in reads of the events on *event_store*; make all other calls on *store*."""
        self._store, self._event_store, self._keys = store, event_store, keys
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ends, self._look_back_lock = EndedJobs(), asyncio.Lock()

    async def wait(self, job_id: str, *, timeout: float, poll_interval: float) -> Any:
        """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
        check_wait(timeout, poll_interval)
        ended = asyncio.Event()
        self._waiters.setdefault(job_id, set()).add(ended)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(job_id, ended, poll_interval)
        finally:
            self._waiters[job_id].discard(ended)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    async def _wait(self, job_id: str, ended: asyncio.Event, poll_s: float) -> Any:
        result, every_s = add_ops.result(self._keys, job_id), max(poll_s, POLL_EVERY_S)
        if (value := await self._store.run(result)) is not None:
            return value
        if self._reader is None or self._reader.done():
            self._ready.clear()
            self._reader = asyncio.ensure_future(self._run_reader())
        await self._ready.wait()
        await self._look_back(first_look_back(job_id))
        stale, looked = "", False
        while True:
            ended.clear()
            end = self._ends.of(job_id)
            if end is not None and end.event_id != stale:
                if (value := await self._store.run(result)) is not None:
                    return value
                over = event_ops.is_over(self._keys, self._ends, job_id, end)
                if await self._store.follow(over):
                    return await self._result_of(job_id, end, poll_s)
                stale = end.event_id
                continue
            try:
                async with asyncio.timeout(every_s):
                    await ended.wait()
            except TimeoutError:
                if (value := await self._store.run(result)) is not None:
                    return value
                if not looked:
                    await self._look_back(second_look_back(job_id))
                looked = True

    async def _result_of(self, job_id: str, end: JobEnd, poll_s: float) -> Any:
        """Return the result of a job that has ended; `None` if its handler returned nothing."""
        lag = Deadline(RESULT_LAG_S)
        while (value := await self._store.run(add_ops.result(self._keys, job_id))) is None:
            if end.is_cancelled:
                raise JobCancelled(self._keys.queue, job_id, end.reason or "")
            if end.reason is not None:
                plan = dlq_ops.buried_at(self._keys, job_id, end.event_id)
                letter = await self._store.follow(plan)
                raise failed_job(self._keys.queue, job_id, end.reason, letter)
            if lag.passed:
                break
            await asyncio.sleep(min(poll_s, RESULT_LAG_S / 10))
        return value

    async def _look_back(self, look: LookBackLimit) -> None:
        # One at a time: the next finds what this one has read.
        async with self._look_back_lock:
            await self._store.follow(event_ops.look_back(self._keys, self._ends, look))

    # ── reading events ───────────────────────────────────────────────────────

    async def _run_reader(self) -> None:
        """Read events until there has been no wait for a while."""
        delays, linger, begun = backoff_delays(), Deadline(LINGER_S), False
        while self._waiters or not linger.passed:
            if self._waiters:
                linger = Deadline(LINGER_S)
            try:
                if not begun:
                    newest = await self._event_store.run(event_ops.last_id(self._keys))
                    async with self._look_back_lock:
                        self._ends.begin(newest)
                    begun = True
                self._ready.set()
                await self._read_events()
                delays = backoff_delays()
            except TamboError:
                self._ready.set()
                await asyncio.sleep(next(delays))

    async def _read_events(self) -> None:
        after = self._ends.newest
        page = await self._event_store.run(event_ops.read(self._keys, after, 1000, BLOCK_MS))
        self._ends.append(after, page)
        self._ends.trim(self._waiters)
        for event in page:
            if event.name in ENDED:
                for ended in self._waiters.get(event.job_id or "", ()):
                    ended.set()

    async def close(self) -> None:
        """Stop reading events."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
