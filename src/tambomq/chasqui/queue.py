"""Adds jobs to a ChasquiMQ queue and looks after it, from asyncio; `BlockingQueue` from threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from tambomq.chasqui import dlq_ops, event_ops, ops, repeat_ops
from tambomq.chasqui.add_options import check_together
from tambomq.chasqui.address import CredentialProvider, endpoint_of
from tambomq.chasqui.dlq_ops import Where
from tambomq.chasqui.job import MAX_DELAY_S, BackoffLike, DeadLetter, Job
from tambomq.chasqui.keys import GROUP, Keys, check_job_id
from tambomq.chasqui.ops import ADDED_TTL_S, EVENTS_CAP, MAX_STREAM_LEN, Policy
from tambomq.chasqui.production import NO_OPTIONS, Production
from tambomq.chasqui.queue_admin import QueueAdmin
from tambomq.chasqui.repeat import MissedFiresLike, RepeatableMeta, RepeatLike
from tambomq.chasqui.results import Results
from tambomq.clock import now_ms
from tambomq.journal.recording import Bounds, bounds_of
from tambomq.store.aio import AsyncStore
from tambomq.store.connect import PATIENCE_S, URL, Endpoint


class Queue(QueueAdmin):
    """A queue, for those who add jobs and look after them.

    *max_stream_len*: jobs that may wait or run; *overflow*: ``"refuse"`` an add beyond that,
    or ``"trim"`` the oldest. *dedup*: the id of a job counts in a ``"window"`` of its producer,
    as the engine has it, or is ``"strict"`` for all during *dedup_ttl_secs*. *dialect*
    of delayed jobs: ``"auto"``, as all who share it read. *announce*: an event for each add.
    *journal*: each job that is added is recorded, with its data, in the queue's journal.
    A server that is away is tried again for *patience_s* seconds.
    """

    def __init__(  # noqa: PLR0913  (options, all by keyword)
        self,
        name: str,
        *,
        redis_url: str | Endpoint = URL,
        tls: bool = False,
        max_stream_len: int | None = None,
        max_delay_secs: int | None = None,
        credential_provider: CredentialProvider | None = None,
        overflow: str = "refuse",
        dedup: str = "window",
        dedup_ttl_secs: int = ADDED_TTL_S,
        dialect: str = "auto",
        events_enabled: bool = True,
        announce: bool = False,
        journal: bool | Bounds = False,
        group: str = GROUP,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Check the options; the first call connects."""
        self._keys, self._group, self._closed = Keys(name), group, False
        self._policy = Policy(
            MAX_STREAM_LEN if max_stream_len is None else max_stream_len,
            overflow,
            EVENTS_CAP if events_enabled else 0,
            dialect,
            MAX_DELAY_S if max_delay_secs is None else max_delay_secs,
            dedup,
            dedup_ttl_secs,
            announce,
            bounds_of(journal),
        )
        endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._store = AsyncStore(endpoint.within(patience_s), patience_s=patience_s)
        self._listens = AsyncStore(endpoint, patience_s=patience_s)
        self._production = Production(self._keys, self._policy, self)
        self._results: Results | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self._keys.queue

    @property
    def is_closed(self) -> bool:
        """Whether it was closed; the next call opens it again."""
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _server(self) -> AsyncStore:
        """Where calls go; the next one opens the queue again, if it was closed."""
        self._closed = False
        return self._store

    # ── adding ───────────────────────────────────────────────────────────────

    async def add(  # noqa: PLR0913  (options, all by keyword)
        self,
        name: str,
        data: Any,
        *,
        delay_ms: float | datetime | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        repeat: RepeatLike | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Add a job: now, after a delay, at a time, or again and again.

        *delay_ms* takes milliseconds or a datetime, *delay* a timedelta. A *job_id*
        that counts already adds nothing. Raises `QueueFull`, `JournalFull`, `ForeignLeader`.
        """
        if repeat is not None or missed_fires is not None:
            pattern = check_together(repeat, missed_fires, delay_ms, delay)
            return await self.upsert_repeatable_job(
                name,
                data,
                repeat=pattern,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
            )
        options = (delay_ms, delay, attempts, backoff, job_id)
        if options == NO_OPTIONS and (quick := self._production.add_quickly(now_ms(), name, data)):
            await self._server.run(quick[1])
            return quick[0]
        return await self._server.follow(self._production.add(now_ms(), name, data, *options))

    async def add_unique(
        self,
        name: str,
        data: Any,
        *,
        job_id: str,
        delay_ms: float | datetime | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        repeat: RepeatLike | None = None,
    ) -> Job:
        """Add a job under an id of yours, which counts once: ``job.added`` tells whether it was.

        What recurs is always taken, instead of what had the id before. See `add`.
        """
        check_job_id(job_id)
        if repeat is not None:
            pattern = check_together(repeat, None, delay_ms, delay)
            return await self.upsert_repeatable_job(
                name, data, repeat=pattern, attempts=attempts, backoff=backoff, job_id=job_id
            )
        options = (delay_ms, delay, attempts, backoff, job_id)
        plan = self._production.add(now_ms(), name, data, *options, tell=True)
        return await self._server.follow(plan)

    async def add_bulk(self, jobs: Iterable[dict[str, Any]]) -> list[Job]:
        """Add jobs in one trip: each a dict with ``name``, ``data`` and the options of `add`.

        Nothing is sent if one of them is not valid. Raises `BatchIncomplete` if the
        server took only some.
        """
        return await self._server.follow(self._production.add_bulk(now_ms(), jobs))

    async def cancel_delayed(self, job_id: str) -> bool:
        """Forget a job that was added under *job_id* and is not due yet; false if there is none."""
        return await self._server.run(ops.cancel(self._keys, job_id, self._policy.events_cap))

    async def cancel_delayed_bulk(self, job_ids: Sequence[str]) -> list[bool]:
        """Forget jobs that are not due yet, in one trip; for each whether it was there."""
        cap = self._policy.events_cap
        return await self._server.run_all([ops.cancel(self._keys, id, cap) for id in job_ids])

    # ── results ──────────────────────────────────────────────────────────────

    async def get_job_result(self, job_id: str) -> Any:
        """Return what the handler returned; `None` if it did not, not yet, or too long ago."""
        return await self._server.run(ops.result(self._keys, job_id))

    async def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """Return what handlers returned, in one trip."""
        return await self._server.run_all([ops.result(self._keys, id) for id in job_ids])

    async def wait_for_result(
        self, job_id: str, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any:
        """Return what the handler returned, once it has; `None` if it returned nothing.

        Raises `JobFailed` when the job is dead, `TimeoutError` after *timeout* seconds.
        """
        if self._results is None:
            self._results = Results(self._server, self._listens, self._keys)
        return await self._results.wait(job_id, timeout=timeout, poll_interval=poll_interval)

    async def get_progress(self, job_id: str) -> int | None:
        """Return how far a job has come, 0 to 100; `None` if it has not said."""
        return await self._server.run(ops.progress(self._keys, job_id))

    async def get_job_logs(self, job_id: str, limit: int = 1000) -> list[str]:
        """Return lines that the handler of a job has logged, the oldest first."""
        return await self._server.run(event_ops.log_lines(self._keys, job_id, limit))

    # ── dead letters ─────────────────────────────────────────────────────────

    async def peek_dlq(self, limit: int = 20) -> list[DeadLetter]:
        """Return the oldest dead letters; nothing changes."""
        return await self._server.run(dlq_ops.peek(self._keys, limit))

    async def replay_dlq(
        self,
        limit: int = 100,
        *,
        ids: Collection[str] | None = None,
        where: Where | None = None,
    ) -> int:
        """Let up to *limit* dead letters run again, the oldest first; return how many will.

        *ids* and *where* choose; what is no job stays.
        """
        plan = dlq_ops.replay(self._keys, self._policy, now_ms(), limit=limit, ids=ids, where=where)
        return await self._server.follow(plan)

    # ── jobs that recur ──────────────────────────────────────────────────────

    async def upsert_repeatable_job(  # noqa: PLR0913  (options, all by keyword)
        self,
        name: str,
        data: Any,
        *,
        repeat: RepeatLike,
        limit: int | None = None,
        start_after_ms: int | None = None,
        end_before_ms: int | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
        missed_fires: MissedFiresLike | None = None,
    ) -> Job:
        """Let a job recur, as new or instead of what has its key: the id of what is returned."""
        plan = self._production.upsert(
            now_ms(),
            name,
            data,
            repeat=repeat,
            limit=limit,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            missed=missed_fires,
        )
        return await self._server.follow(plan)

    async def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """Return what recurs, the next to fire first."""
        return await self._server.follow(repeat_ops.listing(self._keys, limit))

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Let a job recur no more; false if nothing has this key."""
        return await self._server.run(repeat_ops.remove(self._keys, key))

    async def close(self) -> None:
        """Hang up; a later call opens the queue again."""
        self._closed = True
        if self._results is not None:
            await self._results.close()
            self._results = None
        await self._store.close()
        await self._listens.close()
