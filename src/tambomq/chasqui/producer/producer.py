"""What a producer does, as plans nobody has followed yet: the two queues share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeAlias

from tambomq.chasqui import convert_ops, ops, repeat_ops
from tambomq.chasqui.add_options import check_together, due_at
from tambomq.chasqui.job import BackoffLike, Job, make_job, retry_override
from tambomq.chasqui.keys import Keys, check_job_id, check_name
from tambomq.chasqui.ops import Draft, Policy, RoomyAdd
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
from tambomq.chasqui.wire import encode_fresh
from tambomq.errors import BatchIncomplete, InvalidFormat, InvalidValue, TamboError
from tambomq.ids import OwnNames, ulid, ulids
from tambomq.store.call import Call, Plan, results
from tambomq.store.features import Features, features, is_outdated

_USUAL = frozenset(("name", "data"))
_ADD_FIELDS = frozenset(
    ("name", "data", "delay_ms", "delay", "attempts", "backoff", "job_id", "repeat", "missed_fires")
)

PRODUCERS = 16
ROOMY = 100_000
LOOK_EVERY_MS = 200
"""How long a count of free places is relied on: 100,000 of them cannot be taken in this time.
Calls that are held up arrive later: the quick add never trims, but may exceed the cap."""

NO_OPTIONS = (None,) * 5

_Drafts: TypeAlias = Sequence[Draft | RepeatSpec]
_Part: TypeAlias = Sequence[Draft] | RepeatSpec


class Production:
    """Adds jobs to one queue, on behalf of one producer."""

    def __init__(self, keys: Keys, policy: Policy, home: Any) -> None:
        """Let the jobs belong to *home*."""
        self._keys, self._policy, self._home = keys, policy, home
        # A server that knows IDMP keeps the last 100 ids of a producer. Of so many adds at once
        # none is done twice when the connection breaks, but there may be more.
        self._producers = OwnNames(PRODUCERS)
        self._has: Features | None = None
        self._room, self._looked_ms = 0, 0
        self._checked: str | None = None  # the name that was checked last; most adds have it
        self._roomy = RoomyAdd(keys)

    def add(
        self, now_ms: int, name: str, data: Any, *options: Any, tell: bool = False
    ) -> Plan[Job]:
        """Add one job; *options* are those of `_draft`, in its order; *tell* sets `Job.added`."""
        job = self._draft(now_ms, name, data, *options)
        if self._has is None:
            self._has = yield from features()
        outcomes = yield (self._enqueue(job, self._has, quick=not tell),)
        if is_outdated(outcomes):
            self._has, self._room = (yield from features()), 0
            outcomes = yield (self._enqueue(job, self._has, quick=not tell),)
        [taken] = results(outcomes)
        self._learn(now_ms, outcomes)
        if ops.MIXED in outcomes:
            yield from convert_ops.convert(self._keys)
        added = None if not tell else taken is not False and not isinstance(taken, ops.Known)
        return make_job(job.id, name, data, 0, now_ms, self._home, added)

    def add_quickly(self, now_ms: int, name: str, data: Any) -> tuple[Job, Call[None]] | None:
        """Return a job without options and the call that adds it, where one command does.

        Nearly every add is such; the way of `add`, which is ready for anything, takes 5 µs more.
        """
        if not self._is_roomy(now_ms):
            return None
        id = ulid(now_ms)
        body = encode_fresh(id, encode_payload(data), now_ms)
        if name is not self._checked:
            self._checked = check_name(name)
        call = self._roomy.call(self._producer_of(id), id, name, body)
        return make_job(id, name, data, 0, now_ms, self._home), call

    def add_bulk(self, now_ms: int, batch: Iterable[dict[str, Any]]) -> Plan[list[Job]]:
        """Add jobs in one trip; options are those of `add`, each by its name."""
        jobs = list(batch)
        drafts = self._drafts(now_ms, jobs)
        if not drafts:
            return []
        if self._has is None:
            self._has = yield from features()
        parts = self._parts(drafts)
        made: list[Job] = []
        outcomes = yield chain(
            self._calls(now_ms, self._has, parts), self._made(now_ms, drafts, jobs, made)
        )
        if is_outdated(outcomes):
            self._has, self._room = (yield from features()), 0
            # What was added the first time counts once.
            outcomes = yield self._calls(now_ms, self._has, parts)
        if ops.MIXED in outcomes:
            yield from convert_ops.convert(self._keys)
        self._check(made, drafts, parts, outcomes)
        self._learn(now_ms, outcomes)
        return made

    def _made(
        self, now_ms: int, drafts: _Drafts, jobs: Iterable[dict[str, Any]], made: list[Job]
    ) -> Iterator[Call[Any]]:
        """Make no call, but fill *made*: after the calls, while the server is busy with them."""
        for job, given in zip(drafts, jobs, strict=True):
            id = job.key if isinstance(job, RepeatSpec) else job.id
            made.append(make_job(id, given["name"], given["data"], 0, now_ms, self._home))
        yield from ()

    def _parts(self, drafts: _Drafts) -> list[_Part]:
        """What one call each will add: fresh jobs, jobs of one producer, or one of any kind."""
        fresh: list[Draft] = []
        keyed: dict[str, list[Draft]] = {}
        others: list[_Part] = []
        for job in drafts:
            if isinstance(job, RepeatSpec):
                others.append(job)
            elif self._is_alone(job):
                others.append((job,))
            elif job.keyed:
                keyed.setdefault(self._producer_of(job.id), []).append(job)
            else:
                fresh.append(job)
        batches = [batch for jobs in (fresh, *keyed.values()) for batch in ops.batches(jobs)]
        return [*batches, *others]

    def _calls(self, now_ms: int, has: Features, parts: Iterable[_Part]) -> Iterator[Call[Any]]:
        """Make the calls that add *parts*, one after the other."""
        for part in parts:
            if isinstance(part, RepeatSpec):
                yield repeat_ops.upsert(self._keys, part, now_ms, self._policy.dialect)
            elif self._is_alone(part[0]):
                yield self._enqueue(part[0], has)
            else:
                producer = self._producer_of(part[0].id)
                yield ops.add_batch(self._keys, has, self._policy, producer, part)

    def _is_alone(self, job: Draft) -> bool:
        """Whether *job* takes a call of its own."""
        return job.run_at_ms is not None or (job.keyed and self._policy.dedup == "strict")

    def _enqueue(self, job: Draft, has: Features, *, quick: bool = True) -> Call[Any]:
        keys, policy, producer = self._keys, self._policy, self._producer_of(job.id)
        if job.run_at_ms is not None:
            return ops.schedule(keys, policy, producer, job)
        if job.keyed and policy.dedup == "strict":
            return ops.add_once(keys, policy, job)
        if quick and self._is_roomy(job.created_at_ms):
            return self._roomy.call(producer, job.id, job.name, job.body)
        return ops.add(keys, has, policy, producer, job)

    def _producer_of(self, id: str) -> str:
        """Who adds *id*: always the same."""
        return self._producers[hash(id) % PRODUCERS]

    def _is_roomy(self, now_ms: int) -> bool:
        """Whether nobody can have filled the stream since it was looked at: a command will do."""
        return (
            0 <= now_ms - self._looked_ms < LOOK_EVERY_MS
            and self._room > ROOMY
            and self._has is not None
            and self._has.idmp
            and not self._policy.announce
            and not self._policy.journal
        )

    def _learn(self, now_ms: int, lengths: Sequence[Any]) -> None:
        """Remember how many jobs the stream holds, where a reply says so."""
        longest = max((n for n in lengths if type(n) is int), default=None)
        if longest is not None:
            self._room, self._looked_ms = self._policy.max_stream_len - longest, now_ms

    def _check(
        self, made: Sequence[Job], drafts: _Drafts, parts: Sequence[_Part], outcomes: Sequence[Any]
    ) -> None:
        """Raise what went wrong: the error itself, if nothing went right."""
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
            spec = self._spec(**given)
            # What is wrong with it shows before anything is sent.
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
        return ops.draft(
            self._policy,
            now_ms,
            name,
            encode_payload(data),
            job_id=job_id,
            retry=retry_override(attempts, backoff),
            run_at_ms=run_at_ms,
        )

    def upsert(self, now_ms: int, name: str, data: Any, **options: Any) -> Plan[Job]:
        """Let a job recur; the id of what is returned is the spec's key."""
        spec = self._spec(name, data, **options)
        outcomes = yield (repeat_ops.upsert(self._keys, spec, now_ms, self._policy.dialect),)
        results(outcomes)
        return make_job(spec.key, name, data, 0, now_ms, self._home)

    def _spec(  # noqa: PLR0913  (the options of upsert_repeatable_job)
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
        missed: MissedFiresLike | None = None,
    ) -> RepeatSpec:
        pattern = repeat_pattern(repeat)
        retry = retry_override(attempts, backoff)
        if retry is not None and self._policy.dialect == "engine":
            raise InvalidValue(
                "attempts and backoff", retry, "left out for what recurs in the engine's dialect"
            )
        return RepeatSpec(
            spec_key(None if job_id is None else check_job_id(job_id), check_name(name), pattern),
            name,
            pattern,
            encode_payload(data),
            limit,
            start_after_ms,
            end_before_ms,
            SKIP if missed is None else missed_fires(missed),
            retry,
        )
