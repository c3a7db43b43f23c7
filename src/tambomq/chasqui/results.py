"""Waits for what handlers return: told by events, however many wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tambomq.chasqui import event_ops, ops
from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.waiting import BLOCK_MS, LOOK_EVERY_S, RESULT_LAG_S, check_wait, verdict
from tambomq.clock import Deadline, pauses
from tambomq.errors import TamboError
from tambomq.store.aio import AsyncStore


class Results:
    """Waits for results of one queue."""

    def __init__(self, store: AsyncStore, listens: AsyncStore, keys: Keys) -> None:
        """Ask on *store*; listen on a connection that waits."""
        self._store, self._listens, self._keys = store, listens, keys
        self._waiters: dict[str, set[asyncio.Future[QueueEvent]]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def wait(self, job_id: str, *, timeout: float, poll_interval: float) -> Any:
        """Return the result of *job_id*; raise `JobFailed` or `TimeoutError`."""
        check_wait(timeout, poll_interval)
        heard: asyncio.Future[QueueEvent] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, set()).add(heard)
        try:
            async with asyncio.timeout(timeout):
                return await self._wait(job_id, heard, poll_interval)
        finally:
            self._waiters[job_id].discard(heard)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    async def _wait(self, job_id: str, heard: asyncio.Future[QueueEvent], poll_s: float) -> Any:
        if self._listening is None or self._listening.done():
            self._ready.clear()
            self._listening = asyncio.ensure_future(self._listen())
        await self._ready.wait()
        every_s = max(poll_s, LOOK_EVERY_S)
        while True:
            if (value := await self._store.run(ops.result(self._keys, job_id))) is not None:
                return value
            if heard.done():
                break
            await asyncio.wait((heard,), timeout=every_s)
        failed = verdict(self._keys.queue, heard.result())
        if failed is not None:
            raise failed
        lag = Deadline(RESULT_LAG_S)
        while value is None and not lag.passed:
            await asyncio.sleep(min(poll_s, RESULT_LAG_S / 10))
            value = await self._store.run(ops.result(self._keys, job_id))
        return value

    async def _listen(self) -> None:
        wait, after = pauses(), ""
        while self._waiters:
            try:
                after = after or await self._listens.run(event_ops.last_id(self._keys))
                self._ready.set()
                call = event_ops.read(self._keys, after, 1000, BLOCK_MS)
                for event in await self._listens.run(call):
                    after = event.event_id
                    self._hear(event)
                wait = pauses()
            except TamboError:
                self._ready.set()
                await asyncio.sleep(next(wait))

    def _hear(self, event: QueueEvent) -> None:
        if event.name in ("completed", "dlq"):
            for heard in self._waiters.get(event.job_id or "", ()):
                if not heard.done():
                    heard.set_result(event)

    async def close(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
