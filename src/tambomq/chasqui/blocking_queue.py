"""The blocking client of a ChasquiMQ queue, for threads. `Queue` is its twin for asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from tambomq.chasqui.blocking_queue_admin import BlockingQueueAdmin
from tambomq.chasqui.endpoint import CredentialProvider, endpoint_of
from tambomq.chasqui.job import MAX_DELAY_S, BackoffLike, Job
from tambomq.chasqui.keys import GROUP, Keys, check_job_id
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops import repeat as repeat_ops
from tambomq.chasqui.ops import reports
from tambomq.chasqui.ops.add import ADDED_TTL_S, EVENTS_CAP, MAX_STREAM_LEN, Policy
from tambomq.chasqui.producer.add_options import check_together
from tambomq.chasqui.producer.blocking_results import wait_for_result
from tambomq.chasqui.producer.producer import NO_OPTIONS, Producer
from tambomq.chasqui.repeat import MissedFiresLike, RepeatableMeta, RepeatLike
from tambomq.clock import now_ms
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.durability.level import MEMORY, TIMEOUT_S
from tambomq.store.durability.sync import stores
from tambomq.store.endpoint import PATIENCE_S, URL, Endpoint
from tambomq.store.sync import Store


class BlockingQueue(BlockingQueueAdmin):
    """A queue: adds jobs, reads their results, and manages the queue.

    *max_stream_len*: the maximum of waiting and active jobs; *overflow*: ``"refuse"`` an add beyond
    it, or ``"trim"`` the oldest. *dedup*: a job id is unique in the ``"window"`` of its producer,
    as with the engine, or ``"strict"`` for all producers during *dedup_ttl_secs*. *dialect*: the
    format of delayed jobs; ``"auto"`` is one that every participant reads. *announce*: emit an
    event for each add. *journal*: record each added job, with its data, in the queue's journal.
    *patience_s*: how long calls retry while the server is unreachable. *durable*: what an added job
    is before an add returns, unless it says otherwise: in the server's ``"memory"``, on its
    ``"disk"``, or on ``"replicas:N"``, confirmed within *durable_timeout_s*, else `NotDurable`.
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
        journal: bool | JournalBounds = False,
        group: str = GROUP,
        patience_s: float = PATIENCE_S,
        durable: str = MEMORY,
        durable_timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Check the options; the first call connects."""
        self._keys, self._group = Keys(name), group
        self._policy = Policy(
            MAX_STREAM_LEN if max_stream_len is None else max_stream_len,
            overflow,
            EVENTS_CAP if events_enabled else 0,
            dialect,
            MAX_DELAY_S if max_delay_secs is None else max_delay_secs,
            dedup,
            dedup_ttl_secs,
            announce,
            JournalPolicy.for_queue("chasqui", name, journal),
        )
        endpoint = endpoint_of(redis_url, tls=tls, provider=credential_provider)
        self._store = Store(endpoint.within(patience_s), patience_s=patience_s)
        self._senders = stores(self._store, durable, durable_timeout_s)
        self._producer = Producer(self._keys, self._policy, self)
        self._closed = False

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._keys.queue

    @property
    def is_closed(self) -> bool:
        """Whether it is closed; the next call reopens it."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _server(self) -> Store:
        """The store that runs calls; using it reopens a closed queue."""
        self._closed = False
        return self._store

    # ── adding ───────────────────────────────────────────────────────────────

    def add(  # noqa: PLR0913  (options, all by keyword)
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
        durable: str | None = None,
    ) -> Job:
        """Add a job, to run now, after a delay, at a time, or repeatedly.

        *delay_ms* is milliseconds or a datetime, *delay* a timedelta. Nothing is added if
        *job_id* is in use. *durable* overrides the queue's own. Raises `QueueFull`, `JournalFull`,
        `ForeignLeader`, `NotDurable`.
        """
        if repeat is not None or missed_fires is not None:
            pattern = check_together(repeat, missed_fires, delay_ms, delay)
            return self.upsert_repeatable_job(
                name,
                data,
                repeat=pattern,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                missed_fires=missed_fires,
                durable=durable,
            )
        options = (delay_ms, delay, attempts, backoff, job_id)
        sender = self._sender(durable)
        if options == NO_OPTIONS and sender is self._store:
            unchecked = self._producer.add_unchecked(now_ms(), name, data)
            if unchecked:
                sender.run(unchecked[1])
                return unchecked[0]
        return sender.follow(self._producer.add(now_ms(), name, data, *options))

    def add_unique(  # noqa: PLR0913  (options, all by keyword)
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
        debounce_s: float | None = None,
        throttle_s: float | None = None,
        durable: str | None = None,
    ) -> Job:
        """Add a job unless *job_id* is in use; ``job.added`` says whether it was added.

        With *repeat* the job always replaces an earlier one of that id. *debounce_s*: delay it so
        long, in place of the one of this id that is still delayed. *throttle_s*: add at most one
        job of this id in this time. See `add`.
        """
        check_job_id(job_id)
        if repeat is not None:
            pattern = check_together(repeat, None, delay_ms, delay, debounce_s, throttle_s)
            return self.upsert_repeatable_job(
                name,
                data,
                repeat=pattern,
                attempts=attempts,
                backoff=backoff,
                job_id=job_id,
                durable=durable,
            )
        options = (delay_ms, delay, attempts, backoff, job_id)
        spacing = {"debounce_s": debounce_s, "throttle_s": throttle_s}
        plan = self._producer.add_unique(now_ms(), name, data, *options, **spacing)
        return self._sender(durable).follow(plan)

    def add_bulk(self, jobs: Iterable[dict[str, Any]], *, durable: str | None = None) -> list[Job]:
        """Add jobs in one round trip: dicts with ``name``, ``data`` and the options of `add`.

        Nothing is sent if one of them is invalid. Raises `BatchIncomplete` if the server
        accepted only some. With *durable* above memory the batch waits once.
        """
        return self._sender(durable).follow(self._producer.add_bulk(now_ms(), jobs))

    def cancel_delayed(self, job_id: str) -> bool:
        """Delete the delayed job *job_id*; false if there is none."""
        return self._server.run(add_ops.cancel(self._keys, job_id, self._policy.events_cap))

    def cancel_delayed_bulk(self, job_ids: Sequence[str]) -> list[bool]:
        """Delete delayed jobs in one round trip; for each, return whether it existed."""
        cap = self._policy.events_cap
        return self._server.run_all([add_ops.cancel(self._keys, id, cap) for id in job_ids])

    # ── results ──────────────────────────────────────────────────────────────

    def get_job_result(self, job_id: str) -> Any:
        """Return the handler's result; `None` if there is none, or it has expired."""
        return self._server.run(add_ops.result(self._keys, job_id))

    def get_job_result_bulk(self, job_ids: Sequence[str]) -> list[Any]:
        """Return the results of several jobs in one round trip; see `get_job_result`."""
        return self._server.run_all([add_ops.result(self._keys, id) for id in job_ids])

    def wait_for_result(
        self, job_id: str, *, timeout: float = 30.0, poll_interval: float = 0.1
    ) -> Any:
        """Wait for the handler's result and return it; `None` if it returned nothing.

        Raises `JobFailed` when the job is dead, its subclass `JobCancelled` when it was cancelled,
        `TimeoutError` after *timeout* seconds.
        """
        return wait_for_result(
            self._server, self._keys, job_id, timeout=timeout, poll_interval=poll_interval
        )

    def get_progress(self, job_id: str) -> Any:
        """Return the progress that a job has reported; `None` if none."""
        return self._server.run(reports.progress(self._keys, job_id))

    def get_job_logs(self, job_id: str, limit: int = 1000) -> list[str]:
        """Return the log lines of a job, the oldest first."""
        return self._server.run(event_ops.log_lines(self._keys, job_id, limit))

    # ── repeatable jobs ──────────────────────────────────────────────────────

    def upsert_repeatable_job(  # noqa: PLR0913  (options, all by keyword)
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
        unless_queued: bool = False,
        durable: str | None = None,
    ) -> Job:
        """Create a repeatable job, or replace the one of its key, which is the returned ``id``.

        *unless_queued*: skip a fire while the job of the last one waits, runs or is retried.
        """
        plan = self._producer.upsert(
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
            unless_queued=unless_queued,
        )
        return self._sender(durable).follow(plan)

    def get_repeatable_jobs(self, limit: int = 100) -> list[RepeatableMeta]:
        """Return the repeatable jobs, the next to fire first."""
        return self._server.follow(repeat_ops.listing(self._keys, limit))

    def remove_repeatable_by_key(self, key: str) -> bool:
        """Delete a repeatable job; false if there is none of this key."""
        return self._server.run(repeat_ops.remove(self._keys, key))

    def close(self) -> None:
        """Disconnect; a later call reopens the queue."""
        self._closed = True
        self._store.close()
        for store in self._senders.durable:
            store.close()
