"""Calls of producers: add jobs, now or later, cancel them, read their results.

Names, ids and numbers are checked here, before anything is sent. Every call may be repeated after a
lost reply: a job is added once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.chasqui.job import MAX_DELAY_S, U32, U64, Envelope, RetryOverride, check_whole
from tambomq.chasqui.keys import Keys, check_job_id, check_name, check_page_name
from tambomq.chasqui.ops.journal import recorded
from tambomq.chasqui.wire.envelope import check_dialect, encode_envelope, encode_fresh, to_store
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.errors import ForeignLeader, InvalidFormat, InvalidValue, QueueFull
from tambomq.ids import letters, ulid
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Arg, Call, load_script, template
from tambomq.store.features import Features

MAX_STREAM_LEN = 1_000_000
EVENTS_CAP = 100_000
GRACE_S = 3600
"""A scheduled id cannot be scheduled again until so long after the job was due."""
ADDED_TTL_S = 24 * 3600
CHUNK, CHUNK_BYTES = 250, 1 << 20
"""Jobs and bytes that one script adds at most: a script blocks the server."""
MAX_FORMS = 1024
FIRST_CHUNK = 50
"""A small first chunk: the server works on it while the others are encoded."""

CONSUMER_PREFIX = "tambo-"
"""Prefix of the names of our consumers and leaders. Our leaders read both dialects."""
MIXED = "mixed"
"""The reply of `schedule` if a released engine shares the queue: it needs `convert_ops.convert`."""


def _scripts(name: str) -> dict[bool, Any]:
    """Return two variants by whether the server has IDMP."""
    return {
        native: load_script("tambomq.chasqui.ops", name, f"put_{kind}")
        for native, kind in ((True, "native"), (False, "plain"))
    }


_ADD = _scripts("add")
_ADD_ONCE = load_script("tambomq.chasqui.ops", "add_once")
_ADD_FRESH = load_script("tambomq.chasqui.ops", "add_fresh")
_ADD_BATCH = _scripts("add_batch")
_SCHEDULE = load_script("tambomq.chasqui.ops", "schedule")
_CANCEL = load_script("tambomq.chasqui.ops", "cancel")


class Policy(msgspec.Struct, frozen=True):
    """The limits and options of a queue for producers."""

    max_stream_len: int = MAX_STREAM_LEN
    overflow: str = "refuse"
    """Beyond that length: ``refuse`` an add, or ``trim`` the oldest jobs, read or not."""
    events_cap: int = EVENTS_CAP
    """Length of the events stream; 0 writes no events."""
    dialect: str = "auto"
    max_delay_s: int = MAX_DELAY_S
    """0 allows any delay."""
    dedup: str = "window"
    """``window``: an id is added once among the last of its producer. ``strict``: once at all."""
    dedup_ttl_s: int = ADDED_TTL_S
    announce: bool = False
    """Whether a job that is added without a delay gets an event, too."""
    journal: JournalPolicy | None = None
    """Which queues have a journal; `None` for none."""

    @property
    def announced(self) -> int:
        """The cap of the events stream for events of adds; 0 without them."""
        return self.events_cap if self.announce else 0

    def __post_init__(self) -> None:
        check_whole("max_stream_len", self.max_stream_len, U64, minimum=1)
        check_whole("max_delay_secs", self.max_delay_s, U64)
        check_whole("dedup_ttl_secs", self.dedup_ttl_s, U32, minimum=1)
        if self.overflow not in ("refuse", "trim"):
            raise InvalidFormat("overflow", self.overflow, "refuse or trim")
        if self.dedup not in ("window", "strict"):
            raise InvalidFormat("dedup", self.dedup, "window or strict")
        check_dialect(self.dialect)


class Draft(msgspec.Struct):
    """A job about to be added."""

    id: str
    name: str
    payload: bytes
    created_at_ms: int
    retry: RetryOverride | None = None
    run_at_ms: int | None = None
    """When it is due; `None` without a delay."""
    keyed: bool = False
    """Whether the caller chose its id."""

    @property
    def batch(self) -> str:
        """A unique name for the batch whose first job this is."""
        return ulid(self.created_at_ms) if self.keyed else self.id

    @property
    def body(self) -> bytes:
        """The envelope, as stored."""
        if self.retry is None:
            return encode_fresh(self.id, self.payload, self.created_at_ms)
        return encode_envelope(Envelope(self.id, self.payload, self.created_at_ms, 0, self.retry))


def draft(
    policy: Policy,
    now_ms: int,
    name: str,
    payload: bytes,
    *,
    job_id: str | None = None,
    retry: RetryOverride | None = None,
    run_at_ms: int | None = None,
) -> Draft:
    """Check the options of an add and return the job; a time in the past means no delay."""
    check_name(name)
    id = ulid(now_ms) if job_id is None else check_job_id(job_id)
    if run_at_ms is not None and run_at_ms <= now_ms:
        run_at_ms = None
    if run_at_ms is not None:
        _check_delay(policy, name, run_at_ms - now_ms)
    return Draft(id, name, payload, now_ms, retry, run_at_ms, job_id is not None)


def _check_delay(policy: Policy, name: str, delay_ms: int) -> None:
    max_s, delay_s = policy.max_delay_s, delay_ms // 1000
    if max_s and delay_s > max_s:
        raise InvalidValue("delay", f"{delay_s}s", f"within max_delay_secs {max_s}s")
    if policy.dialect == "page":
        check_page_name(name)


def add(keys: Keys, features: Features, policy: Policy, producer: str, job: Draft) -> Call[int]:
    """Add *job* and return the stream's length: `DuplicateLength` if its producer had added it."""
    args = (
        producer, policy.max_stream_len, policy.overflow, policy.events_cap, policy.announced,
        job.created_at_ms, job.id, job.body, job.name,
    )  # fmt: skip
    redis_keys = (keys.stream, keys.events, keys.window(producer))
    script = _ADD[features.idmp and not policy.journal]
    call = Call(script, redis_keys, args, partial(_length, keys.queue, policy), repeatable=True)
    return _recorded(keys, policy, call, (job,))


def add_once(keys: Keys, policy: Policy, job: Draft, added: str = "", ttl_ms: int = 0) -> Call[int]:
    """Add *job* and return the stream's length: `DuplicateLength` if any producer had added it.

    The key *added* remembers that for *ttl_ms*, instead of the one of strict dedup.
    """
    args = (
        ttl_ms or policy.dedup_ttl_s * 1000, policy.max_stream_len, policy.overflow,
        policy.events_cap, policy.announced, job.created_at_ms, job.id, job.body, job.name,
        letters(8),
    )  # fmt: skip
    redis_keys = (keys.stream, keys.events, added or keys.added(job.id))
    call = Call(_ADD_ONCE, redis_keys, args, partial(_length, keys.queue, policy), repeatable=True)
    return _recorded(keys, policy, call, (job,))


class UncheckedAdd:
    """Adds jobs without checking the length: for a stream far from full, on a server with IDMP.

    A plain XADD takes 31 µs per round trip, the script 54. It has no MAXLEN: delayed until the
    stream is full, it exceeds the cap. Trimming would drop accepted jobs that nobody counts.
    """

    def __init__(self, keys: Keys) -> None:
        """Keep no form of the command yet: the first add of a producer and name makes theirs."""
        self._keys, self._forms = (keys.stream,), dict[tuple[str, str], bytes]()

    def call(self, producer: str, id: str, name: str, body: bytes) -> Call[None]:
        """Add a job, unless its producer has added its id."""
        key, form = id.encode(), self._forms.get((producer, name)) or self._form(producer, name)
        packed = form % (len(key), key, len(body), body)
        return Call("XADD", self._keys, (), _nothing, repeatable=True, packed=packed)

    def _form(self, producer: str, name: str) -> bytes:
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        words = ("XADD", *self._keys, "IDMP", producer, None, "*", "d", None)
        form = self._forms[producer, name] = template(*words, *(("n", name) if name else ()))
        return form


def add_batch(
    keys: Keys, features: Features, policy: Policy, producer: str, jobs: Sequence[Draft]
) -> Call[int]:
    """Add *jobs*, all or none; returns the stream's length.

    Either all have ids of ours, or the caller chose all ids, and each is added once.
    """
    first, redis_keys = jobs[0], (keys.stream, keys.events, keys.window(producer))
    bound = (policy.max_stream_len, policy.overflow, policy.events_cap)
    decode = partial(_length, keys.queue, policy)
    args: list[Arg]
    if first.keyed or policy.announce:
        args = [first.batch, producer, *bound, policy.announced, first.created_at_ms]
        for job in jobs:
            args += (job.id, job.body, job.name)
        script = _ADD_BATCH[features.idmp and not policy.journal]
        call = Call(script, redis_keys, tuple(args), decode, repeatable=True)
        return _recorded(keys, policy, call, jobs)
    # Each argument costs the server nearly half a microsecond, so a name that all jobs share is
    # sent once.
    args = [first.batch, *bound, first.created_at_ms, 1, first.name]
    args += [job.body for job in jobs]
    if any(job.name != first.name for job in jobs):
        args[5:] = (2, "", *(item for job in jobs for item in (job.body, job.name)))
    call = Call(_ADD_FRESH, redis_keys, tuple(args), decode, repeatable=True)
    return _recorded(keys, policy, call, jobs)


def batches(jobs: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Yield *jobs* in chunks for one script each; of many, a small one first."""
    first, size, max_jobs = 0, 0, FIRST_CHUNK if len(jobs) > CHUNK else CHUNK
    for index, job in enumerate(jobs):
        if index - first == max_jobs or (size and size + len(job.payload) > CHUNK_BYTES):
            yield jobs[first:index]
            first, size, max_jobs = index, 0, CHUNK
        size += len(job.payload)
    if first < len(jobs):
        yield jobs[first:]


def schedule(keys: Keys, policy: Policy, producer: str, job: Draft) -> Call[bool | str]:
    """Add *job* with its delay; false if its id is scheduled already. May return `MIXED`."""
    run_at_ms = job.run_at_ms or 0
    delay_ms = run_at_ms - job.created_at_ms
    dialect, member = to_store(job.name, job.body, policy.dialect)
    args = (
        dialect, policy.events_cap, job.created_at_ms, job.id, job.name, delay_ms, run_at_ms,
        member,
        # Redis refuses longer times to live.
        min(max(1, delay_ms // 1000), U32) + GRACE_S if job.keyed else 0,
        # Others may schedule the same id, with the same data in the same millisecond.
        ulid(0) if job.keyed else job.id,
    )  # fmt: skip
    redis_keys = (
        keys.delayed, keys.events, keys.marker(job.id), keys.index(job.id), keys.window(producer),
        keys.stream, *keys.signs,
    )  # fmt: skip
    call = Call(_SCHEDULE, redis_keys, args, partial(_scheduled, keys.queue), repeatable=True)
    return _recorded(keys, policy, call, (job,))


def cancel(keys: Keys, job_id: str, events_cap: int = 0) -> Call[bool]:
    """Remove a delayed job by the *job_id* of its caller; false if there is none, or it is due."""
    check_job_id(job_id)
    own = (keys.marker(job_id), keys.index(job_id))
    redis_keys = (keys.delayed, *own, keys.events, keys.requests)
    return Call(_CANCEL, redis_keys, (events_cap, job_id, ulid(0)), bool, repeatable=True)


def result(keys: Keys, job_id: str) -> Call[Any]:
    """Return a job's result; `None` if it has none, none yet, or it has expired."""
    return Call("GET", (keys.result(check_job_id(job_id)),), (), _result, repeatable=True)


def _recorded(keys: Keys, policy: Policy, call: Call[Any], jobs: Sequence[Draft]) -> Call[Any]:
    size = sum(len(job.payload) for job in jobs) if policy.journal else 0
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size)


class DuplicateLength(int):
    """The stream's length where nothing was added, because the id was added before."""


def _length(queue: str, policy: Policy, reply: int) -> int:
    if reply == -1:
        raise QueueFull(queue, policy.max_stream_len)
    return DuplicateLength(-2 - reply) if reply < 0 else reply


def _nothing(_: Any) -> None:
    return None


def _scheduled(queue: str, reply: int | bytes) -> bool | str:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    return MIXED if reply > 1 else bool(reply)


def _result(reply: bytes | None) -> Any:
    return None if reply is None else decode_payload(reply)
