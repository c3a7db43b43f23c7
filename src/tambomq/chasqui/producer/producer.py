"""Plans that add jobs, shared by `Queue` and `BlockingQueue`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeAlias

from tambomq.chasqui.job import BackoffLike, Job, make_job, retry_override
from tambomq.chasqui.keys import Keys, check_name
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import convert as convert_ops
from tambomq.chasqui.ops import repeat as repeat_ops
from tambomq.chasqui.ops.add import Draft, Policy, UncheckedAdd
from tambomq.chasqui.ops.debounce import debounce, throttle
from tambomq.chasqui.producer.add_options import (
    check_spacing,
    check_together,
    due_at,
    repeat_spec,
)
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire.envelope import encode_fresh
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.errors import BatchIncomplete, InvalidFormat, TamboError
from tambomq.ids import OwnNames, ulid, ulids
from tambomq.store.call import Call, Plan, results
from tambomq.store.features import Features, features, is_outdated

_USUAL = frozenset(("name", "data"))
_ADD_FIELDS = frozenset(
    ("name", "data", "delay_ms", "delay", "attempts", "backoff", "job_id", "repeat", "missed_fires")
)

PRODUCERS = 16
MIN_FREE = 100_000
COUNT_VALID_MS = 200
"""How long a count of free slots is valid: 100,000 of them cannot fill up in this time. A call that
is delayed on its way arrives later; `UncheckedAdd` then exceeds the cap, but never trims."""

NO_OPTIONS = (None,) * 5

_Drafts: TypeAlias = Sequence[Draft | RepeatSpec]
_Part: TypeAlias = Sequence[Draft] | RepeatSpec


class Producer:
    """Adds jobs to one queue, on behalf of one producer."""

    def __init__(self, keys: Keys, policy: Policy, owner: Any) -> None:
        """Make jobs that belong to *owner*, the queue."""
        self._keys, self._policy, self._owner = keys, policy, owner
        # A server with IDMP remembers the last 100 ids of a producer. More adds than that may be
        # under way when a connection breaks, so each queue object is several producers.
        self._producers = OwnNames(PRODUCERS)
        self._features: Features | None = None
        self._free, self._counted_at_ms = 0, 0
        self._checked: str | None = None  # the name checked last; most adds have it
        self._unchecked = UncheckedAdd(keys)

    def add(
        self, now_ms: int, name: str, data: Any, *options: Any, report_added: bool = False
    ) -> Plan[Job]:
        """Add one job with the *options* of `_draft`, in order; *report_added* sets `Job.added`."""
        job = self._draft(now_ms, name, data, *options)
        if self._features is None:
            self._features = yield from features()
        outcomes = yield (self._enqueue(job, self._features, unchecked=not report_added),)
        if is_outdated(outcomes):
            self._features, self._free = (yield from features()), 0
            outcomes = yield (self._enqueue(job, self._features, unchecked=not report_added),)
        [taken] = results(outcomes)
        self._learn(now_ms, outcomes)
        if add_ops.MIXED in outcomes:
            yield from convert_ops.convert(self._keys)
        added = (
            None
            if not report_added
            else taken is not False and not isinstance(taken, add_ops.DuplicateLength)
        )
        return make_job(job.id, name, data, 0, now_ms, self._owner, added)

    def add_unique(
        self,
        now_ms: int,
        name: str,
        data: Any,
        *options: Any,
        debounce_s: float | None = None,
        throttle_s: float | None = None,
    ) -> Plan[Job]:
        """Add one job as `add` does, debounced or throttled if it says so; sets `Job.added`."""
        wait_ms = check_spacing(debounce_s, throttle_s, *options[:2])
        if wait_ms is None:
            return (yield from self.add(now_ms, name, data, *options, report_added=True))
        if debounce_s is None:
            job = self._draft(now_ms, name, data, *options)
            added = yield from throttle(self._keys, self._policy, job, wait_ms)
        else:
            job = self._draft(now_ms, name, data, wait_ms, *options[1:])
            added = yield from debounce(self._keys, self._policy, job, wait_ms)
        return make_job(job.id, name, data, 0, now_ms, self._owner, added)

    def add_unchecked(self, now_ms: int, name: str, data: Any) -> tuple[Job, Call[None]] | None:
        """Return a job without options and the command that adds it; `None` where `add` is needed.

        Nearly every add is of this kind. The general `add` takes 5 µs more.
        """
        if not self._may_skip_check(now_ms):
            return None
        id = ulid(now_ms)
        body = encode_fresh(id, encode_payload(data), now_ms)
        if name is not self._checked:
            self._checked = check_name(name)
        call = self._unchecked.call(self._producer_of(id), id, name, body)
        return make_job(id, name, data, 0, now_ms, self._owner), call

    def add_bulk(self, now_ms: int, batch: Iterable[dict[str, Any]]) -> Plan[list[Job]]:
        """Add jobs in one round trip; options are those of `Queue.add`, by name."""
        jobs = list(batch)
        drafts = self._drafts(now_ms, jobs)
        if not drafts:
            return []
        if self._features is None:
            self._features = yield from features()
        parts = self._parts(drafts)
        made: list[Job] = []
        outcomes = yield chain(
            self._calls(now_ms, self._features, parts), self._made(now_ms, drafts, jobs, made)
        )
        if is_outdated(outcomes):
            self._features, self._free = (yield from features()), 0
            # Jobs that were added the first time are not added again: their ids are known.
            outcomes = yield self._calls(now_ms, self._features, parts)
        if add_ops.MIXED in outcomes:
            yield from convert_ops.convert(self._keys)
        self._check(made, drafts, parts, outcomes)
        self._learn(now_ms, outcomes)
        return made

    def _made(
        self, now_ms: int, drafts: _Drafts, jobs: Iterable[dict[str, Any]], made: list[Job]
    ) -> Iterator[Call[Any]]:
        """Make no call, but fill *made*: comes last, while the server works on earlier calls."""
        for job, given in zip(drafts, jobs, strict=True):
            id = job.key if isinstance(job, RepeatSpec) else job.id
            made.append(make_job(id, given["name"], given["data"], 0, now_ms, self._owner))
        yield from ()

    def _parts(self, drafts: _Drafts) -> list[_Part]:
        """Split jobs into parts for one call each: our ids, ids of one producer, single jobs."""
        fresh: list[Draft] = []
        keyed: dict[str, list[Draft]] = {}
        others: list[_Part] = []
        for job in drafts:
            if isinstance(job, RepeatSpec):
                others.append(job)
            elif self._needs_own_call(job):
                others.append((job,))
            elif job.keyed:
                keyed.setdefault(self._producer_of(job.id), []).append(job)
            else:
                fresh.append(job)
        batches = [batch for jobs in (fresh, *keyed.values()) for batch in add_ops.batches(jobs)]
        return [*batches, *others]

    def _calls(
        self, now_ms: int, supported: Features, parts: Iterable[_Part]
    ) -> Iterator[Call[Any]]:
        """Yield the calls that add *parts*."""
        for part in parts:
            if isinstance(part, RepeatSpec):
                yield repeat_ops.upsert(self._keys, part, now_ms, self._policy.dialect)
            elif self._needs_own_call(part[0]):
                yield self._enqueue(part[0], supported)
            else:
                producer = self._producer_of(part[0].id)
                yield add_ops.add_batch(self._keys, supported, self._policy, producer, part)

    def _needs_own_call(self, job: Draft) -> bool:
        """Whether *job* cannot be added in a batch."""
        return job.run_at_ms is not None or (job.keyed and self._policy.dedup == "strict")

    def _enqueue(self, job: Draft, supported: Features, *, unchecked: bool = True) -> Call[Any]:
        keys, policy, producer = self._keys, self._policy, self._producer_of(job.id)
        if job.run_at_ms is not None:
            return add_ops.schedule(keys, policy, producer, job)
        if job.keyed and policy.dedup == "strict":
            return add_ops.add_once(keys, policy, job)
        if unchecked and self._may_skip_check(job.created_at_ms):
            return self._unchecked.call(producer, job.id, job.name, job.body)
        return add_ops.add(keys, supported, policy, producer, job)

    def _producer_of(self, id: str) -> str:
        """Return the producer that adds *id*: always the same."""
        return self._producers[hash(id) % PRODUCERS]

    def _may_skip_check(self, now_ms: int) -> bool:
        """Whether the stream cannot have filled up since its length was last known."""
        return (
            0 <= now_ms - self._counted_at_ms < COUNT_VALID_MS
            and self._free > MIN_FREE
            and self._features is not None
            and self._features.idmp
            and not self._policy.announce
            and not self._policy.journal
        )

    def _learn(self, now_ms: int, lengths: Sequence[Any]) -> None:
        """Remember the length of the stream, if a reply says it."""
        longest = max((n for n in lengths if type(n) is int), default=None)
        if longest is not None:
            self._free, self._counted_at_ms = self._policy.max_stream_len - longest, now_ms

    def _check(
        self, made: Sequence[Job], drafts: _Drafts, parts: Sequence[_Part], outcomes: Sequence[Any]
    ) -> None:
        """Raise `BatchIncomplete` if some calls failed, or the error itself if all did."""
        errors = [outcome for outcome in outcomes if isinstance(outcome, TamboError)]
        if not errors:
            return
        if len(errors) == len(outcomes):
            raise errors[0]
        failed = {
            id(draft)
            for part, outcome in zip(parts, outcomes, strict=True)
            if isinstance(outcome, TamboError)
            for draft in ((part,) if isinstance(part, RepeatSpec) else part)
        }
        ids = [
            None if id(draft) in failed else job.id for job, draft in zip(made, drafts, strict=True)
        ]
        raise BatchIncomplete(self._keys.queue, ids) from errors[0]

    def _drafts(self, now_ms: int, jobs: Sequence[dict[str, Any]]) -> list[Draft | RepeatSpec]:
        drafts: list[Draft | RepeatSpec] = []
        checked = ""
        for id, job in zip(ulids(now_ms, len(jobs)), jobs, strict=True):
            if job.keys() != _USUAL:
                drafts.append(self._draft_of(now_ms, job))
                continue
            # Nearly all jobs of a batch have a name and data and no more, and the same name.
            if (name := job["name"]) is not checked:
                checked = check_name(name)
            drafts.append(Draft(id, name, encode_payload(job["data"]), now_ms))
        return drafts

    def _draft_of(self, now_ms: int, job: dict[str, Any]) -> Draft | RepeatSpec:
        if unknown := job.keys() - _ADD_FIELDS:
            raise InvalidFormat("job", min(unknown), f"has {', '.join(sorted(_ADD_FIELDS))}")
        if missing := _USUAL - job.keys():
            raise InvalidFormat("job", dict(job), f"needs {' and '.join(sorted(missing))}")
        given = {name: value for name, value in job.items() if value is not None}
        given |= {name: job[name] for name in _USUAL}
        check_together(*map(given.get, ("repeat", "missed_fires", "delay_ms", "delay")))
        if "repeat" in given:
            if "missed_fires" in given:
                given["missed"] = given.pop("missed_fires")
            spec = repeat_spec(self._policy.dialect, **given)
            # Raises for a bad spec before anything is sent.
            repeat_ops.upsert(self._keys, spec, now_ms)
            return spec
        return self._draft(now_ms, **given)

    def _draft(
        self,
        now_ms: int,
        name: str,
        data: Any,
        delay_ms: float | datetime | None = None,
        delay: timedelta | None = None,
        attempts: int | None = None,
        backoff: BackoffLike | None = None,
        job_id: str | None = None,
    ) -> Draft:
        run_at_ms = None
        if delay_ms is not None or delay is not None:
            run_at_ms = due_at(now_ms, delay_ms, delay)
        return add_ops.draft(
            self._policy,
            now_ms,
            name,
            encode_payload(data),
            job_id=job_id,
            retry=retry_override(attempts, backoff),
            run_at_ms=run_at_ms,
        )

    def upsert(self, now_ms: int, name: str, data: Any, **options: Any) -> Plan[Job]:
        """Create or replace a repeatable job; the id of the returned job is the spec's key."""
        spec = repeat_spec(self._policy.dialect, name, data, **options)
        outcomes = yield (repeat_ops.upsert(self._keys, spec, now_ms, self._policy.dialect),)
        results(outcomes)
        return make_job(spec.key, name, data, 0, now_ms, self._owner)
