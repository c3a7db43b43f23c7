"""Waits for what handlers return: told by events, earlier ones among them, however many wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tambomq.chasqui import dlq_ops, event_ops, ops
from tambomq.chasqui.ends import ENDED, End, Ends, Look, first_look, second_look
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.waiting import (
    BLOCK_MS,
    LINGER_S,
    LOOK_EVERY_S,
    RESULT_LAG_S,
    check_wait,
    failed_job,
)
from tambomq.clock import Deadline, pauses
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore


class Results:
    """Waits for results of one queue."""

    def __init__(self, store: AsyncStore, listens: AsyncStore, keys: Keys) -> None:
        """Ask on *store*; listen on a connection that waits."""
        self._store, self._listens, self._keys = store, listens, keys
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._ends, self._looking = Ends(), asyncio.Lock()

    async def wait(self, job_id: str, *, timeout: float, poll_interval: float) -> Any:
        """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
        check_wait(timeout, poll_interval)
        heard = asyncio.Event()
        self._waiters.setdefault(job_id, set()).add(heard)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(job_id, heard, poll_interval)
        finally:
            self._waiters[job_id].discard(heard)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    async def _wait(self, job_id: str, heard: asyncio.Event, poll_s: float) -> Any:
        result, every_s = ops.result(self._keys, job_id), max(poll_s, LOOK_EVERY_S)
        if (value := await self._store.run(result)) is not None:
            return value
        if self._listening is None or self._listening.done():
            self._ready.clear()
            self._listening = asyncio.ensure_future(self._listen())
        await self._ready.wait()
        await self._look_back(first_look(job_id))
        stale, looked = "", False
        while True:
            heard.clear()
            end = self._ends.of(job_id)
            if end is not None and end.event_id != stale:
                if (value := await self._store.run(result)) is not None:
                    return value
                over = event_ops.is_over(self._keys, self._ends, job_id, end)
                if await self._store.follow(over):
                    return await self._settled(job_id, end, poll_s)
                stale = end.event_id
                continue
            try:
                async with asyncio.timeout(every_s):
                    await heard.wait()
            except TimeoutError:
                if (value := await self._store.run(result)) is not None:
                    return value
                if not looked:
                    await self._look_back(second_look(job_id))
                looked = True

    async def _settled(self, job_id: str, end: End, poll_s: float) -> Any:
        """The result of a job that has ended; `None` if it returned nothing."""
        lag = Deadline(RESULT_LAG_S)
        while (value := await self._store.run(ops.result(self._keys, job_id))) is None:
            if end.reason is not None:
                plan = dlq_ops.buried_at(self._keys, job_id, end.event_id)
                letter = await self._store.follow(plan)
                raise failed_job(self._keys.queue, job_id, end.reason, letter)
            if lag.passed:
                break
            await asyncio.sleep(min(poll_s, RESULT_LAG_S / 10))
        return value

    async def _look_back(self, look: Look) -> None:
        # One at a time: those who wait next find what this one has read.
        async with self._looking:
            await self._store.follow(event_ops.look_back(self._keys, self._ends, look))

    # ── listening ────────────────────────────────────────────────────────────

    async def _listen(self) -> None:
        """Hear events until nobody has waited for a while."""
        wait, linger, begun = pauses(), Deadline(LINGER_S), False
        while self._waiters or not linger.passed:
            if self._waiters:
                linger = Deadline(LINGER_S)
            try:
                if not begun:
                    newest = await self._listens.run(event_ops.last_id(self._keys))
                    async with self._looking:
                        self._ends.begin(newest)
                    begun = True
                self._ready.set()
                await self._hear()
                wait = pauses()
            except TamboError:
                self._ready.set()
                await asyncio.sleep(next(wait))

    async def _hear(self) -> None:
        after = self._ends.newest
        page = await self._listens.run(event_ops.read(self._keys, after, 1000, BLOCK_MS))
        self._ends.append(after, page)
        self._ends.forget_most(self._waiters)
        for event in page:
            if event.name in ENDED:
                for heard in self._waiters.get(event.job_id or "", ()):
                    heard.set()

    async def close(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
