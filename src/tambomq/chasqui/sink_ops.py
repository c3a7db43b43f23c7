"""Adding jobs in chunks that are added once, as calls nobody has made yet.

A chunk and the token that says it was written are one script: whoever adds the chunk again, after
whatever went wrong, adds nothing. So each call may be repeated. What stands in Redis then is what
`add` would have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tambomq.chasqui.job import U32
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import GRACE_S, OURS, Draft, Policy
from tambomq.chasqui.wire import encode_member
from tambomq.errors import ForeignLeader, QueueFull
from tambomq.store.call import Arg, Call, load_script

_FRESH = load_script("tambomq.chasqui", "sink_fresh", "note", "room")
_JOBS = load_script("tambomq.chasqui", "sink_jobs", "note", "room", "seen")

_FULL = -3


def add(
    keys: Keys, policy: Policy, query: str, mark: Sequence[Arg], jobs: Sequence[Draft]
) -> Call[int]:
    """Add *jobs* unless *mark* says they are there: 1, or 0 if they were before.

    *mark* is the batch, the chunk's token and digest, and how many seconds to keep these; -1 means
    that another digest was kept, -2 that the batch is over. An id that the caller chose counts
    once, as it does when a producer adds it.
    """
    bound = (policy.max_stream_len, policy.overflow, policy.events_cap, jobs[0].created_at_ms)
    decode = partial(_added, keys.queue, policy)
    if any(job.keyed or job.run_at_ms is not None for job in jobs):
        where, words = _any(keys, policy, query, jobs)
        return Call(_JOBS, where, (*mark, *bound, *words), decode, repeatable=True)
    where = (keys.stream, keys.events, keys.fence(query))
    name = jobs[0].name
    words = (1, name, *(job.body for job in jobs))
    if any(job.name != name for job in jobs):
        words = (2, "", *(item for job in jobs for item in (job.body, job.name)))
    return Call(_FRESH, where, (*mark, *bound, *words), decode, repeatable=True)


def _any(
    keys: Keys, policy: Policy, query: str, jobs: Sequence[Draft]
) -> tuple[tuple[str, ...], tuple[Arg, ...]]:
    """Return the keys and the words of jobs that have ids of their own, or are not due yet."""
    waiting = sum(job.run_at_ms is None for job in jobs)
    where = [
        keys.stream, keys.events, keys.delayed, keys.promoter_lock, keys.window(query),
        keys.fence(query),
    ]  # fmt: skip
    words: list[Arg] = [OURS if policy.dialect == "page" else "", waiting]
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
