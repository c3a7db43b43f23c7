"""What a producer does, as plans nobody has followed yet: the two queues share them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tambomq.chasqui import ops, repeat_ops
from tambomq.chasqui.job import U64, BackoffLike, Job, check_whole, retry_override
from tambomq.chasqui.keys import Keys, check_job_id, check_name
from tambomq.chasqui.ops import Draft, Policy
from tambomq.chasqui.packing import encode_payload
from tambomq.chasqui.repeat import (
    SKIP,
    MissedFiresLike,
    RepeatLike,
    RepeatSpec,
    missed_fires,
    repeat_pattern,
    spec_key,
)
from tambomq.errors import BatchIncomplete, InvalidFormat, InvalidValue, TamboError
from tambomq.store.call import Plan, results
from tambomq.store.features import Features, features

_ADD_FIELDS = frozenset(
    ("name", "data", "delay_ms", "delay", "attempts", "backoff", "job_id", "repeat", "missed_fires")
)


class Production:
    """Adds jobs to one queue, on behalf of one producer."""

    def __init__(self, keys: Keys, policy: Policy, home: Any) -> None:
        """Let the jobs belong to *home*."""
        self._keys, self._policy, self._home = keys, policy, home
        self._producer = str(uuid.uuid4())
        self._has: Features | None = None

    def add(
        self,
        now_ms: int,
        name: str,
        data: Any,
        *,
        delay_ms: float | datetime | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
    ) -> Plan[Job]:
        """Add one job."""
        job = self._draft(now_ms, name, data, delay_ms, delay, attempts, backoff, job_id)
        if self._has is None:
            self._has = yield from features()
        outcomes = yield (ops.enqueue(self._keys, self._has, self._policy, self._producer, job),)
        results(outcomes)
        return Job(job.id, name, data, 0, now_ms, self._home)

    def add_bulk(self, now_ms: int, jobs: Sequence[dict[str, Any]]) -> Plan[list[Job]]:
        """Add jobs in one trip; options are those of `add`, each by its name."""
        if repeats := [job for job in jobs if job.get("repeat") is not None]:
            raise InvalidFormat("job", repeats[0].get("name"), "repeat goes with add, not add_bulk")
        drafts = [self._draft_of(now_ms, job) for job in jobs]
        if not drafts:
            return []
        if self._has is None:
            self._has = yield from features()
        calls = ops.enqueue_all(self._keys, self._has, self._policy, self._producer, drafts)
        outcomes = yield [call for _, call in calls]
        self._check(drafts, [batch for batch, _ in calls], outcomes)
        return [
            Job(job.id, job.name, given["data"], 0, now_ms, self._home)
            for job, given in zip(drafts, jobs, strict=True)
        ]

    def _check(
        self, drafts: list[Draft], batches: list[Sequence[Draft]], outcomes: list[Any]
    ) -> None:
        """Raise what went wrong: the error itself, if nothing went right."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, TamboError)]
        if not errors:
            return
        if len(errors) == len(outcomes):
            raise errors[0]
        failed = {
            id(job)
            for batch, outcome in zip(batches, outcomes, strict=True)
            if isinstance(outcome, TamboError)
            for job in batch
        }
        ids = [None if id(job) in failed else job.id for job in drafts]
        raise BatchIncomplete(self._keys.queue, ids) from errors[0]

    def _draft_of(self, now_ms: int, job: dict[str, Any]) -> Draft:
        if unknown := job.keys() - _ADD_FIELDS:
            raise InvalidFormat("job", min(unknown), f"has {', '.join(sorted(_ADD_FIELDS))}")
        if missing := {"name", "data"} - job.keys():
            raise InvalidFormat("job", dict(job), f"needs {' and '.join(sorted(missing))}")
        if len(job) == 2:  # noqa: PLR2004  (name and data: most jobs have no more)
            payload = encode_payload(job["data"])
            return ops.draft(self._policy, now_ms, job["name"], payload)
        return self._draft(
            now_ms,
            job["name"],
            job["data"],
            job.get("delay_ms"),
            job.get("delay"),
            job.get("attempts"),
            job.get("backoff"),
            job.get("job_id"),
        )

    def _draft(
        self,
        now_ms: int,
        name: str,
        data: Any,
        delay_ms: float | datetime | None,
        delay: timedelta | None,
        attempts: int | None,
        backoff: BackoffLike | None,
        job_id: str | None,
    ) -> Draft:
        run_at_ms = None
        if delay_ms is not None or delay is not None:
            run_at_ms = due_at(now_ms, delay_ms, delay)
        return ops.draft(
            self._policy,
            now_ms,
            name,
            encode_payload(data),
            job_id=job_id,
            retry=retry_override(attempts, backoff),
            run_at_ms=run_at_ms,
        )

    def upsert(  # noqa: PLR0913  (the options of upsert_repeatable_job)
        self,
        now_ms: int,
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
        missed: MissedFiresLike | None = None,
    ) -> Plan[Job]:
        """Let a job recur; the id of what is returned is the spec's key."""
        pattern = repeat_pattern(repeat)
        retry = retry_override(attempts, backoff)
        if retry is not None and self._policy.dialect == "engine":
            raise InvalidValue(
                "attempts and backoff", retry, "left out for what recurs in the engine's dialect"
            )
        key = spec_key(None if job_id is None else check_job_id(job_id), check_name(name), pattern)
        spec = RepeatSpec(
            key,
            name,
            pattern,
            encode_payload(data),
            limit,
            start_after_ms,
            end_before_ms,
            SKIP if missed is None else missed_fires(missed),
            retry,
        )
        outcomes = yield (repeat_ops.upsert(self._keys, spec, now_ms),)
        results(outcomes)
        return Job(key, name, data, 0, now_ms, self._home)


def due_at(now_ms: int, delay_ms: float | datetime | None, delay: timedelta | None) -> int:
    """Return when a job is due; a naive datetime is in UTC."""
    if delay_ms is not None and delay is not None:
        raise InvalidValue("delay", delay, "left out where delay_ms is given")
    if delay is not None:
        if not isinstance(delay, timedelta):
            raise InvalidFormat("delay", delay, "a timedelta; delay_ms takes numbers")
        delay_ms = delay / timedelta(milliseconds=1)
    if isinstance(delay_ms, datetime):
        moment = delay_ms if delay_ms.tzinfo else delay_ms.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    if isinstance(delay_ms, bool) or not isinstance(delay_ms, int | float):
        raise InvalidFormat("delay_ms", delay_ms, "milliseconds, or a datetime")
    if not 0 <= delay_ms <= U64:
        raise InvalidValue("delay_ms", delay_ms, "non-negative, and not beyond all bounds")
    return now_ms + check_whole("delay_ms", int(delay_ms), U64)
