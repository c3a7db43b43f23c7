"""Adding jobs in chunks that are added once, as calls nobody has made yet.

A chunk and the token that says it was written are one script: whoever adds the chunk again, after
whatever went wrong, adds nothing. So each call may be repeated. What stands in Redis then is what
`add` would have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain

from tambomq.chasqui.job import U32
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import GRACE_S, Draft, Policy
from tambomq.chasqui.recorded import recorded
from tambomq.chasqui.wire import encode_member
from tambomq.errors import ForeignLeader, QueueFull
from tambomq.store.call import Arg, Call, load_script

_FRESH = load_script("tambomq.chasqui", "sink_fresh", "note", "room")
_JOBS = load_script("tambomq.chasqui", "sink_jobs", "note", "room", "seen", "prefix", "dialect")

_FULL = -3


def add(
    keys: Keys, policy: Policy, query: str, mark: Sequence[Arg], jobs: Sequence[Draft]
) -> Call[int]:
    """Add *jobs* unless *mark* says they are there: 1, or 0 if they were before.

    *mark* is the batch, the chunk's token and digest, and how many seconds to keep these; -1 means
    that another digest was kept, -2 that the batch is over. An id that the caller chose counts
    once, as it does when a producer adds it. Raises `JournalFull`, and adds nothing.
    """
    now_ms = jobs[0].created_at_ms
    if not any(job.keyed or job.run_at_ms is not None for job in jobs):
        bodies, names = [job.body for job in jobs], [job.name for job in jobs]
        return add_fresh(keys, policy, query, mark, now_ms, bodies, names)
    where, words = _any(keys, policy, query, jobs)
    args = (*mark, *_bound(policy, now_ms), *words)
    call = Call(_JOBS, where, args, partial(_added, keys.queue, policy), repeatable=True)
    size = sum(len(job.payload) for job in jobs)
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size)


def add_fresh(
    keys: Keys,
    policy: Policy,
    query: str,
    mark: Sequence[Arg],
    now_ms: int,
    bodies: Sequence[bytes],
    names: Sequence[str],
) -> Call[int]:
    """Add jobs that wait at once, by ids nobody else has: what `add` says.

    *bodies* are as they are stored; *names* one for each, or one for all.
    """
    # Each argument costs the server nearly half a microsecond, and most chunks have one name.
    words: list[Arg] = [1, names[0], *bodies]
    if len(set(names)) > 1:
        pairs: Iterable[tuple[Arg, Arg]] = zip(bodies, names, strict=True)
        words = [2, "", *chain.from_iterable(pairs)]
    args = (*mark, *_bound(policy, now_ms), *words)
    where = (keys.stream, keys.events, keys.fence(query))
    call = Call(_FRESH, where, args, partial(_added, keys.queue, policy), repeatable=True)
    # The envelopes are somewhat longer than the payloads, which is near enough.
    size = sum(map(len, bodies))
    return recorded(keys, policy.journal, call, entries=len(bodies), size=size)


def _bound(policy: Policy, now_ms: int) -> tuple[Arg, ...]:
    return policy.max_stream_len, policy.overflow, policy.events_cap, now_ms


def _any(
    keys: Keys, policy: Policy, query: str, jobs: Sequence[Draft]
) -> tuple[tuple[str, ...], tuple[Arg, ...]]:
    """Return the keys and the words of jobs that have ids of their own, or are not due yet."""
    waiting = sum(job.run_at_ms is None for job in jobs)
    where = [
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
            where += (keys.marker(job.id), keys.index(job.id))
    return tuple(where), tuple(words)


def _taken_s(job: Draft) -> int:
    """For how long no other job of its id is scheduled: what `ops.schedule` says."""
    delay_ms = (job.run_at_ms or 0) - job.created_at_ms
    return min(max(1, delay_ms // 1000), U32) + GRACE_S if job.keyed else 0


def _added(queue: str, policy: Policy, reply: int | bytes) -> int:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    if reply == _FULL:
        raise QueueFull(queue, policy.max_stream_len)
    return reply
