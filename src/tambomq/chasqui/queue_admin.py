"""Looks after a ChasquiMQ queue as a whole, and after its jobs one by one, from asyncio.

`Queue` is one of these; its twin has the same methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tambomq.chasqui import admin_ops, job_ops, worker_ops
from tambomq.chasqui.job import JobCounts
from tambomq.chasqui.job_info import JobInfo, WorkerInfo
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import Policy
from tambomq.clock import now_ms
from tambomq.store.aio import AsyncStore


class QueueAdmin(ABC):
    """What operators ask of a queue."""

    _keys: Keys
    _group: str
    _policy: Policy

    @property
    @abstractmethod
    def _server(self) -> AsyncStore:
        """Where calls go."""

    # ── one job ──────────────────────────────────────────────────────────────

    async def get_job(self, job_id: str) -> JobInfo | None:
        """Return where a job is and what is known of it; `None` if nothing is.

        Only delayed jobs are found by their id: for others the queue is read, on the server.
        """
        return await self._server.follow(job_ops.get(self._keys, self._group, job_id))

    async def remove_job(self, job_id: str) -> bool:
        """Delete a waiting, delayed or dead job; false if there is none. Raises `JobBusy`."""
        cap = self._policy.events_cap
        return await self._server.follow(job_ops.remove(self._keys, job_id, cap))

    async def retry_job(self, job_id: str) -> bool:
        """Let a dead job run again, with all its attempts, or a delayed one at once.

        False if the job is neither. Raises `QueueFull`.
        """
        plan = job_ops.retry(self._keys, self._policy, job_id, now_ms())
        return await self._server.follow(plan)

    async def get_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Return the workers of the group, each with up to *limit* jobs that it holds."""
        return await self._server.follow(job_ops.workers(self._keys, self._group, limit))

    # ── the queue as a whole ─────────────────────────────────────────────────

    async def get_job_counts(self) -> JobCounts:
        """Return how many jobs are where."""
        return await self._server.follow(admin_ops.counts(self._keys, self._group))

    async def pause(self) -> None:
        """Let workers start no job, from within a quarter of a second until `resume`."""
        await self._server.run(admin_ops.pause(self._keys))

    async def resume(self) -> bool:
        """Let workers go on; false if the queue was not paused."""
        return await self._server.run(admin_ops.resume(self._keys))

    async def is_paused(self) -> bool:
        """Whether the queue is paused."""
        return await self._server.run(worker_ops.is_paused(self._keys))

    async def drain(self, *, delayed: bool = False) -> int:
        """Forget the jobs that wait, and those that are *delayed*; return how many."""
        plan = admin_ops.drain(self._keys, self._group, self._policy.events_cap, delayed=delayed)
        return await self._server.follow(plan)

    async def clean(self, grace_ms: int = 0, *, limit: int = 1000, state: str = "dlq") -> int:
        """Forget ``dlq``, ``waiting`` or ``delayed`` jobs older than *grace_ms*; count them."""
        cap, before_ms = self._policy.events_cap, now_ms() - grace_ms
        plan = admin_ops.clean(
            self._keys, self._group, cap, before_ms=before_ms, limit=limit, state=state
        )
        return await self._server.follow(plan)

    async def obliterate(self, *, force: bool = False) -> int:
        """Forget the queue, also with jobs running if *force*, or raise `QueueBusy`; count keys."""
        return await self._server.follow(admin_ops.obliterate(self._keys, self._group, force=force))
