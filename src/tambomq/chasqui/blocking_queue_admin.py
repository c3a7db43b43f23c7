"""The admin methods of `BlockingQueue`, for threads: the twin of `QueueAdmin`, method by method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from tambomq.chasqui.job import DeadLetter, JobCounts
from tambomq.chasqui.job_info import JobInfo, WorkerInfo
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops import cancel as cancel_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import jobs as job_ops
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.ops.dlq import LetterFilter
from tambomq.clock import now_ms
from tambomq.store.durability.stores import StoresByLevel
from tambomq.store.sync import Store


class BlockingQueueAdmin(ABC):
    """Operations on a queue and on single jobs of it."""

    _keys: Keys
    _group: str
    _policy: Policy
    _closed: bool
    _senders: StoresByLevel[Store]

    @property
    @abstractmethod
    def _server(self) -> Store:
        """The store that runs calls."""

    def _sender(self, durable: str | None) -> Store:
        """Return the store that adds jobs as *durable* as asked for, or as the queue's default."""
        self._closed = False
        return self._senders.default if durable is None else self._senders.at(durable)

    # ── one job ──────────────────────────────────────────────────────────────

    def get_job(self, job_id: str) -> JobInfo | None:
        """Return the state and the fields of a job; `None` if it is unknown.

        Only delayed jobs have an index by id: for others a script scans the queue.
        """
        return self._server.follow(job_ops.get(self._keys, self._group, job_id))

    def remove_job(self, job_id: str) -> bool:
        """Delete a waiting, delayed or dead job; false if there is none. Raises `JobBusy`."""
        cap = self._policy.events_cap
        return self._server.follow(job_ops.remove(self._keys, job_id, cap))

    def cancel_job(self, job_id: str, reason: str = "") -> bool:
        """End a delayed, waiting or running job as cancelled; false if it is none of these.

        True means that it has ended: no retry, no dead letter, no result, and an event
        ``cancelled``. A handler that runs it is stopped at once: a coroutine
        is cancelled, a plain function has to look at `Job.is_cancelled`. Raises `JobBusy` if a
        Spark query or a worker of another implementation runs it.
        """
        cap = self._policy.events_cap
        return self._server.follow(cancel_ops.cancel_job(self._keys, job_id, reason, cap))

    def retry_job(self, job_id: str) -> bool:
        """Requeue a dead job with all its attempts, or run a delayed one at once.

        False if the job is neither. Raises `QueueFull`.
        """
        plan = job_ops.retry(self._keys, self._policy, job_id, now_ms())
        return self._server.follow(plan)

    def get_workers(self, limit: int = 100) -> list[WorkerInfo]:
        """Return the workers of the group, each with up to *limit* of its pending jobs."""
        return self._server.follow(job_ops.workers(self._keys, self._group, limit))

    # ── dead letters ─────────────────────────────────────────────────────────

    def peek_dlq(self, limit: int = 20) -> list[DeadLetter]:
        """Return the oldest dead letters, without changing them."""
        return self._server.run(dlq_ops.peek(self._keys, limit))

    def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        where: LetterFilter | None = None,
    ) -> int:
        """Move up to *limit* dead letters back to the queue, the oldest first; return how many.

        *ids* and *where* select. Letters that are not valid jobs stay.
        """
        plan = dlq_ops.replay(self._keys, self._policy, now_ms(), limit=limit, ids=ids, where=where)
        return self._server.follow(plan)

    # ── the queue as a whole ─────────────────────────────────────────────────

    def get_job_counts(self) -> JobCounts:
        """Return the number of jobs in each state."""
        return self._server.follow(admin_ops.counts(self._keys, self._group))

    def pause(self) -> None:
        """Stop workers from starting jobs, within a quarter of a second, until `resume`."""
        self._server.run(admin_ops.pause(self._keys))

    def resume(self) -> bool:
        """End a pause; false if the queue was not paused."""
        return self._server.run(admin_ops.resume(self._keys))

    def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        return self._server.run(worker_ops.is_paused(self._keys))

    def drain(self, *, delayed: bool = False) -> int:
        """Delete the waiting jobs, with *delayed* also the delayed ones; return how many."""
        plan = admin_ops.drain(self._keys, self._group, self._policy.events_cap, delayed=delayed)
        return self._server.follow(plan)

    def clean(self, grace_ms: int = 0, *, limit: int = 1000, state: str = "dlq") -> int:
        """Delete up to *limit* jobs of *state* older than *grace_ms*; return how many.

        *state* is ``dlq``, ``waiting`` or ``delayed``.
        """
        cap, before_ms = self._policy.events_cap, now_ms() - grace_ms
        plan = admin_ops.clean(
            self._keys, self._group, cap, before_ms=before_ms, limit=limit, state=state
        )
        return self._server.follow(plan)

    def obliterate(self, *, force: bool = False) -> int:
        """Delete all keys of the queue; return how many.

        Raises `QueueBusy` if jobs are active, unless *force*.
        """
        return self._server.follow(admin_ops.obliterate(self._keys, self._group, force=force))
