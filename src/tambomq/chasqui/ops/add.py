"""What producers ask of Redis, as calls nobody has made yet.

Names, ids and numbers are checked here, before anything is sent. Every call may
be repeated after a lost reply: a job is added once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.chasqui.job import MAX_DELAY_S, U32, U64, Envelope, RetryOverride, check_whole
from tambomq.chasqui.keys import Keys, check_job_id, check_name, check_page_name
from tambomq.chasqui.packing import decode_payload
from tambomq.chasqui.recorded import recorded
from tambomq.chasqui.wire import check_dialect, encode_envelope, encode_fresh, to_store
from tambomq.errors import ForeignLeader, InvalidFormat, InvalidValue, QueueFull
from tambomq.ids import ulid
from tambomq.journal.recording import Bounds
from tambomq.store.call import Arg, Call, load_script, template
from tambomq.store.features import Features

MAX_STREAM_LEN = 1_000_000
EVENTS_CAP = 100_000
GRACE_S = 3600
"""A scheduled id stays taken for so long after the job was due."""
ADDED_TTL_S = 24 * 3600
CHUNK, CHUNK_BYTES = 250, 1 << 20
"""So many jobs are added by one script, and so many bytes: it must not keep others waiting."""
FIRST_CHUNK = 50
"""The server begins with these while the others are still being made."""

OURS = "tambo-"
"""So begin the names of our leaders, who read both dialects of delayed members, and consumers."""
MIXED = "mixed"
"""What `schedule` tells of a queue that a released engine shares, where it may come upon members
that it cannot read: `convert_ops.convert` is needed."""


def _scripts(name: str, *parts: str) -> dict[bool, Any]:
    """The script as it is where IDMP is known, and where it is not."""
    return {
        native: load_script("tambomq.chasqui", name, *parts, f"put_{kind}")
        for native, kind in ((True, "native"), (False, "plain"))
    }


_ADD = _scripts("add", "note", "room", "seen")
_ADD_ONCE = load_script("tambomq.chasqui", "add_once", "note", "room")
_ADD_FRESH = load_script("tambomq.chasqui", "add_fresh", "note", "room", "seen")
_ADD_BATCH = _scripts("add_batch", "note", "room", "seen")
_SCHEDULE = load_script("tambomq.chasqui", "schedule", "note", "seen", "prefix", "dialect")
_CANCEL = load_script("tambomq.chasqui", "cancel", "note", "cancelled", "prefix", "seen")


class Policy(msgspec.Struct, frozen=True):
    """How a queue takes jobs."""

    max_stream_len: int = MAX_STREAM_LEN
    overflow: str = "refuse"
    """``refuse`` an add beyond that, or ``trim`` the oldest jobs, read or not."""
    events_cap: int = EVENTS_CAP
    """0 writes no events."""
    dialect: str = "auto"
    max_delay_s: int = MAX_DELAY_S
    """0 allows any."""
    dedup: str = "window"
    """``window``: an id counts once among the last ones of a producer. ``strict``: once at all."""
    dedup_ttl_s: int = ADDED_TTL_S
    announce: bool = False
    """Whether there is an event for each job that is added to wait at once."""
    journal: Bounds | None = None
    """How much the journal holds; without it there is none."""

    @property
    def announced(self) -> int:
        """How many events are kept, if adds are to be some."""
        return self.events_cap if self.announce else 0

    def __post_init__(self) -> None:
        check_whole("max_stream_len", self.max_stream_len, U64, least=1)
        check_whole("max_delay_secs", self.max_delay_s, U64)
        check_whole("dedup_ttl_secs", self.dedup_ttl_s, U32, least=1)
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
    """When it is due; `None`: at once."""
    keyed: bool = False
    """Whether the caller chose its id."""

    @property
    def batch(self) -> str:
        """A name for the batch that begins with it, unlike that of any other."""
        return ulid(self.created_at_ms) if self.keyed else self.id

    @property
    def body(self) -> bytes:
        """The job as it is stored."""
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
    """Return the job that the options come to; raise what is wrong with them."""
    check_name(name)
    id = ulid(now_ms) if job_id is None else check_job_id(job_id)
    if run_at_ms is not None:
        if run_at_ms <= now_ms:
            run_at_ms = None
        else:
            _check_delay(policy, name, run_at_ms - now_ms)
    return Draft(id, name, payload, now_ms, retry, run_at_ms, job_id is not None)


def _check_delay(policy: Policy, name: str, delay_ms: int) -> None:
    most, delay_s = policy.max_delay_s, delay_ms // 1000
    if most and delay_s > most:
        raise InvalidValue("delay", f"{delay_s}s", f"within max_delay_secs {most}s")
    if policy.dialect == "page":
        check_page_name(name)


def add(keys: Keys, has: Features, policy: Policy, producer: str, job: Draft) -> Call[int]:
    """Add *job*, unless its id counts already: `Known`; returns how many jobs the stream holds."""
    args = (
        producer, policy.max_stream_len, policy.overflow, policy.events_cap, policy.announced,
        job.created_at_ms, job.id, job.body, job.name,
    )  # fmt: skip
    where = (keys.stream, keys.events, keys.window(producer))
    script = _ADD[has.idmp and not policy.journal]
    call = Call(script, where, args, partial(_length, keys.queue, policy), repeatable=True)
    return _recorded(keys, policy, call, (job,))


def add_once(keys: Keys, policy: Policy, job: Draft) -> Call[int]:
    """Add *job*, unless any producer has: `Known`; returns how many jobs the stream holds."""
    args = (
        policy.dedup_ttl_s, policy.max_stream_len, policy.overflow, policy.events_cap,
        policy.announced, job.created_at_ms, job.id, job.body, job.name,
    )  # fmt: skip
    where = (keys.stream, keys.events, keys.added(job.id))
    call = Call(_ADD_ONCE, where, args, partial(_length, keys.queue, policy), repeatable=True)
    return _recorded(keys, policy, call, (job,))


class RoomyAdd:
    """Adds jobs to a stream that is known to be far from full, by a server that knows IDMP.

    A command instead of a script: a round trip takes 31 µs instead of 54. It carries no MAXLEN.
    A call that was held up on its way may find the stream full; trimming would then drop jobs
    that were accepted, and no event would count them. It exceeds the cap instead.
    """

    def __init__(self, keys: Keys) -> None:
        """Prepare the two forms: with a name and without."""
        self._where = (keys.stream,)
        words = ("XADD", keys.stream, "IDMP", None, None, "*", "d", None)
        self._unnamed, self._named = template(*words), template(*words, "n", None)

    def call(self, producer: str, id: str, name: str, body: bytes) -> Call[None]:
        """Add a job, unless its id counts already."""
        by, key, label = producer.encode(), id.encode(), name.encode()
        words = (len(by), by, len(key), key, len(body), body)
        packed = self._named % (*words, len(label), label) if label else self._unnamed % words
        return Call("XADD", self._where, (), _nothing, repeatable=True, packed=packed)


def add_batch(
    keys: Keys, has: Features, policy: Policy, producer: str, jobs: Sequence[Draft]
) -> Call[int]:
    """Add *jobs*, all or none; returns how many the stream holds.

    Either all are fresh, or the caller chose all ids, and each counts once.
    """
    first, where = jobs[0], (keys.stream, keys.events, keys.window(producer))
    bound = (policy.max_stream_len, policy.overflow, policy.events_cap)
    decode = partial(_length, keys.queue, policy)
    args: list[Arg]
    if first.keyed or policy.announce:
        args = [first.batch, producer, *bound, policy.announced, first.created_at_ms]
        for job in jobs:
            args += (job.id, job.body, job.name)
        script = _ADD_BATCH[has.idmp and not policy.journal]
        call = Call(script, where, tuple(args), decode, repeatable=True)
        return _recorded(keys, policy, call, jobs)
    # Each argument costs the server nearly half a microsecond, and most batches have one name.
    args = [first.batch, *bound, first.created_at_ms, 1, first.name]
    args += [job.body for job in jobs]
    if any(job.name != first.name for job in jobs):
        args[5:] = (2, "", *(item for job in jobs for item in (job.body, job.name)))
    call = Call(_ADD_FRESH, where, tuple(args), decode, repeatable=True)
    return _recorded(keys, policy, call, jobs)


def batches(jobs: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Yield *jobs* in parts that one script may add; of many, a small one first."""
    first, size, most = 0, 0, FIRST_CHUNK if len(jobs) > CHUNK else CHUNK
    for place, job in enumerate(jobs):
        if place - first == most or (size and size + len(job.payload) > CHUNK_BYTES):
            yield jobs[first:place]
            first, size, most = place, 0, CHUNK
        size += len(job.payload)
    if first < len(jobs):
        yield jobs[first:]


def schedule(keys: Keys, policy: Policy, producer: str, job: Draft) -> Call[bool | str]:
    """Add *job*, which is not due yet; false if one of its id was scheduled before, or `MIXED`."""
    run_at_ms = job.run_at_ms or 0
    delay_ms = run_at_ms - job.created_at_ms
    dialect, member = to_store(job.name, job.body, policy.dialect)
    args = (
        dialect, policy.events_cap, job.created_at_ms, job.id, job.name, delay_ms, run_at_ms,
        member,
        # Redis refuses to keep anything for ever so long.
        min(max(1, delay_ms // 1000), U32) + GRACE_S if job.keyed else 0,
    )  # fmt: skip
    where = (
        keys.delayed, keys.events, keys.marker(job.id), keys.index(job.id), keys.window(producer),
        keys.stream, *keys.signs,
    )  # fmt: skip
    call = Call(_SCHEDULE, where, args, partial(_scheduled, keys.queue), repeatable=True)
    return _recorded(keys, policy, call, (job,))


def cancel(keys: Keys, job_id: str, events_cap: int = 0) -> Call[bool]:
    """Forget a job that was scheduled under *job_id*; false if it is not there, or due."""
    check_job_id(job_id)
    own = (keys.marker(job_id), keys.index(job_id))
    where = (keys.delayed, *own, keys.events, keys.requests)
    return Call(_CANCEL, where, (events_cap, job_id, ulid(0)), bool, repeatable=True)


def result(keys: Keys, job_id: str) -> Call[Any]:
    """Return what the handler returned; `None` if it did not, not yet, or too long ago."""
    return Call("GET", (keys.result(check_job_id(job_id)),), (), _result, repeatable=True)


def progress(keys: Keys, job_id: str) -> Call[int | None]:
    """Return how far the job has come; `None` if it has not said."""
    return Call("GET", (keys.progress(check_job_id(job_id)),), (), _percent, repeatable=True)


def _recorded(keys: Keys, policy: Policy, call: Call[Any], jobs: Sequence[Draft]) -> Call[Any]:
    size = sum(len(job.payload) for job in jobs) if policy.journal else 0
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size)


class Known(int):
    """How many jobs the stream holds, where nothing was added: the id counts already."""


def _length(queue: str, policy: Policy, reply: int) -> int:
    if reply == -1:
        raise QueueFull(queue, policy.max_stream_len)
    return Known(-2 - reply) if reply < 0 else reply


def _nothing(_: Any) -> None:
    return None


def _scheduled(queue: str, reply: int | bytes) -> bool | str:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    return MIXED if reply > 1 else bool(reply)


def _result(reply: bytes | None) -> Any:
    return None if reply is None else decode_payload(reply)


def _percent(reply: bytes | None) -> int | None:
    return int(reply) if reply is not None and reply.isdigit() else None
