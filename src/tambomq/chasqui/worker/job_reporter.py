"""Stores the progress and log lines that handlers report, while the job runs.

`Job.update_progress` and `Job.log` call it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Container, Coroutine
from typing import Any

from tambomq.chasqui.ops import reports
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.clock import now_ms
from tambomq.store.aio import AsyncStore


class JobReporter:
    """Stores progress and log lines, from the worker's loop or from a handler's thread.

    On the loop a method returns a coroutine for the handler to await; in a thread it returns when
    the report is stored.
    """

    def __init__(
        self,
        store: AsyncStore,
        context: ConsumerContext,
        ttl_s: int | None,
        cancelled: Container[str],
    ) -> None:
        """Keep reports for *ttl_s* seconds; *cancelled* has the entries that were cancelled."""
        self._cancelled = cancelled
        self._store, self._context, self._ttl_s = store, context, ttl_s
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def update_progress(self, id: str, value: Any, name: str) -> Any:
        """Store the progress of job *id*, 0 to 100 or any small value, and emit an event."""
        return self._on_loop(self._store_progress(id, value, name))

    def log(self, id: str, line: str) -> Any:
        """Append *line* to the log of job *id*."""
        return self._on_loop(self._store_line(id, line))

    def is_cancelled(self, entry: str) -> bool:
        """Whether the job of *entry* was cancelled."""
        return entry in self._cancelled

    def _on_loop(self, report: Coroutine[Any, Any, None]) -> Any:
        if threading.get_ident() == self._thread:
            return report
        return asyncio.run_coroutine_threadsafe(report, self._loop).result()

    async def _store_progress(self, id: str, value: Any, name: str) -> None:
        stored = reports.encode_progress(value)
        fields = ("n", name) if name else ()
        calls: list[Any] = [reports.set_progress(self._context.keys, id, stored, self._ttl_s)]
        if self._context.events_cap:
            event = (now_ms(), "progress", id, *fields, "progress", stored)
            calls.append(worker_ops.emit(self._context, *event))
        await self._store.run_all(calls)

    async def _store_line(self, id: str, line: str) -> None:
        await self._store.run_all(reports.log_line(self._context.keys, id, line, self._ttl_s))
