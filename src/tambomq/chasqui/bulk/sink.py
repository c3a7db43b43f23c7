"""Calls that add chunks of ChasquiMQ jobs, each chunk once.

One script adds a chunk and stores the chunk's token. A chunk whose token is already stored is not
added again, so each call may be repeated after any failure. The jobs are stored as a producer's
`add` stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

import msgspec

from tambomq.chasqui.job import U32
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import GRACE_S, Draft, Policy
from tambomq.chasqui.ops.journal import recorded
from tambomq.chasqui.wire.envelope import encode_member
from tambomq.errors import ForeignLeader, QueueFull
from tambomq.store.call import Arg, Call, load_script, pack_alike

_FRESH = load_script("tambomq.chasqui.bulk", "sink_fresh")
_JOBS = load_script("tambomq.chasqui.bulk", "sink_jobs")

_FULL = -3


def add(
    keys: Keys, policy: Policy, query: str, chunk_token: Sequence[Arg], jobs: Sequence[Draft]
) -> Call[int]:
    """Add *jobs* as one chunk; 1, or 0 if the chunk was added before.

    *chunk_token* is the batch number, the chunk's token and digest, and how many seconds to keep
    them. -1 means that the token is stored with another digest, -2 that the batch is closed. Ids
    chosen by the caller are deduplicated as a producer does. Raises `JournalFull`, and adds
    nothing.
    """
    now_ms = jobs[0].created_at_ms
    if not any(job.keyed or job.run_at_ms is not None for job in jobs):
        bodies, names = [job.body for job in jobs], [job.name for job in jobs]
        return add_fresh(keys, policy, query, chunk_token, now_ms, bodies, names)
    call_keys, words = _any(keys, policy, query, jobs)
    args = (*chunk_token, *_bound(policy, now_ms), *words)
    call = Call(_JOBS, call_keys, args, partial(_added, keys.queue, policy), repeatable=True)
    size = sum(len(job.payload) for job in jobs)
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size)


def add_fresh(
    keys: Keys,
    policy: Policy,
    query: str,
    chunk_token: Sequence[Arg],
    now_ms: int,
    bodies: Sequence[bytes],
    names: Sequence[str],
) -> Call[int]:
    """Add jobs that are due now and have generated ids; returns and raises as `add` does.

    *bodies* are encoded envelopes; *names* has one name for each, or one for all.
    """
    # Each argument costs the server nearly half a microsecond, and most chunks have one name.
    words: list[Arg] = [1, names[0], *bodies]
    if len(set(names)) > 1:
        pairs: Iterable[tuple[Arg, Arg]] = zip(bodies, names, strict=True)
        words = [2, "", *chain.from_iterable(pairs)]
    args = (*chunk_token, *_bound(policy, now_ms), *words)
    call_keys = (keys.stream, keys.events, keys.fence(query))
    call = Call(_FRESH, call_keys, args, partial(_added, keys.queue, policy), repeatable=True)
    if policy.journal is None:
        packed = pack_alike(call.parts[: -len(bodies)], bodies) if words[0] == 1 else None
        return msgspec.structs.replace(call, packed=packed)
    # An estimate: envelopes are slightly longer than the payloads that are recorded.
    size = sum(map(len, bodies))
    return recorded(keys, policy.journal, call, entries=len(bodies), size=size)


def _bound(policy: Policy, now_ms: int) -> tuple[Arg, ...]:
    return policy.max_stream_len, policy.overflow, policy.events_cap, now_ms


def _any(
    keys: Keys, policy: Policy, query: str, jobs: Sequence[Draft]
) -> tuple[tuple[str, ...], tuple[Arg, ...]]:
    """Return the keys and arguments for jobs with ids of the caller's, or with a delay."""
    waiting = sum(job.run_at_ms is None for job in jobs)
    call_keys = [
        keys.stream, keys.events, keys.delayed, keys.window(query), keys.fence(query), *keys.signs,
    ]  # fmt: skip
    words: list[Arg] = [policy.dialect, waiting]
    for job in jobs:
        if job.run_at_ms is None:
            words += (job.id, int(job.keyed), job.body, job.name, "")
            continue
        member = encode_member(job.name, job.body, policy.dialect)
        words += (job.id, _taken_s(job), member, job.name, job.run_at_ms)
        if job.keyed:
            call_keys += (keys.marker(job.id), keys.index(job.id))
    return tuple(call_keys), tuple(words)


def _taken_s(job: Draft) -> int:
    """Return for how long the job's id stays reserved, as `add_ops.schedule` computes it."""
    delay_ms = (job.run_at_ms or 0) - job.created_at_ms
    return min(max(1, delay_ms // 1000), U32) + GRACE_S if job.keyed else 0


def _added(queue: str, policy: Policy, reply: int | bytes) -> int:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    if reply == _FULL:
        raise QueueFull(queue, policy.max_stream_len)
    return reply
