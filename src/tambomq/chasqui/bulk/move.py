"""Jobs on their way from or to another queue, as calls and plans nobody has made yet.

How they go, and what a batch is: `tambomq.store.transit`. Jobs that wait and jobs that are delayed
go, and an event tells of each that has left; dead letters, repeatable specs and results stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.chasqui import scan_ops
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.recorded import payload_of, recorded
from tambomq.chasqui.wire import decode_envelope, decode_member, encode_member
from tambomq.errors import ForeignLeader, InvalidFormat, QueueFull, RemoteProtocolError
from tambomq.store import transit
from tambomq.store.call import Arg, Call, Plan, load_script, results
from tambomq.store.transit import BATCH, ROOM, Batch

_TAKE = load_script("tambomq.chasqui", "move_take", "note", "moved", "prefix")
_TAKE_LATER = load_script("tambomq.chasqui", "move_take_later", "note", "moved")
_PUT = load_script("tambomq.chasqui", "move_put", "note", "room", "prefix", "dialect")

_FULL = -3
_UNKNOWN = "?"


class Leaving(msgspec.Struct, frozen=True):
    """A job as it left its queue."""

    envelope: bytes
    name: str
    due_ms: int = 0
    """When it is due; 0 if it waited."""
    taken_ms: int = 0
    """For how long no other may have its id; 0 if another may."""


class Coming(msgspec.Struct, frozen=True):
    """A job as it is to be added."""

    id: str
    name: str
    envelope: bytes
    run_at_ms: int = 0
    """When it is due; 0 for now."""
    taken_ms: int = 0


def take(keys: Keys, events_cap: int, id: str, run: str) -> Call[Batch]:
    """Let jobs leave that wait and that no worker has; or return what is in transit already."""
    where = (keys.stream, keys.move(id), keys.transit(id), keys.events)
    args = (run, BATCH, ROOM, RETURNED, events_cap)
    return Call(_TAKE, where, args, transit.batch, repeatable=True)


def take_later(keys: Keys, events_cap: int, id: str, run: str) -> Plan[Batch]:
    """Let delayed jobs leave, the first due first; or return what is in transit already."""
    page = scan_ops.members(keys.delayed, "-inf", "+inf", 0, BATCH)
    members, _ = results((yield (page,)))[0]
    where = [keys.delayed, keys.move(id), keys.transit(id), keys.events]
    room, words = ROOM, list[Arg]([run, events_cap])
    for member in members:
        if room <= 0:
            break
        job, name = _known(member)
        where += (keys.marker(job or _UNKNOWN), keys.index(job or _UNKNOWN))
        words += (member, job, name)
        room -= len(member)
    call = Call(_TAKE_LATER, tuple(where), tuple(words), transit.batch, repeatable=True)
    taken: Batch = results((yield (call,)))[0]
    return taken


def in_flight(keys: Keys) -> Plan[int]:
    """Return how many jobs workers have, of whichever group."""
    listed = Call("XINFO GROUPS", (keys.stream,), (), _pending, repeatable=True)
    # An error means that there is no stream.
    outcome = (yield (listed,))[0]
    return outcome if isinstance(outcome, int) else 0


def leaving(row: tuple[bytes, bytes]) -> Leaving:
    """Return the job that a row of a batch is."""
    head, body = row
    if head[:2] == b"w ":
        return Leaving(body, head[2:].decode("utf-8", "replace"))
    _, due, taken = head.split(b" ")
    try:
        name, envelope = decode_member(body)
    except RemoteProtocolError:
        name, envelope = "", body
    return Leaving(envelope, name, max(1, int(due)), int(taken))


def put(
    keys: Keys, policy: Policy, query: str, number: int, mark: str, ts: int, jobs: Sequence[Coming]
) -> Call[bool]:
    """Add the jobs of batch *number*; false if they were added before.

    Raises `QueueFull`, `JournalFull` or `ForeignLeader`, and adds nothing. An id does not count
    once here: each job that left its queue arrives.
    """
    waiting = sum(not job.run_at_ms for job in jobs)
    where = [keys.stream, keys.events, keys.delayed, keys.fence(query), *keys.signs]
    bound = (policy.max_stream_len, policy.events_cap, ts, policy.dialect, waiting)
    words: list[Arg] = [number, mark, *bound]
    for job in jobs:
        body = _stored(policy, job)
        head = len(body) - len(job.envelope)
        words += (job.id, job.name, job.run_at_ms or "", job.taken_ms, head, body)
        if job.run_at_ms and job.taken_ms:
            where += (keys.marker(job.id), keys.index(job.id))
    decode = partial(_added, keys.queue, policy)
    call = Call(_PUT, tuple(where), tuple(words), decode, repeatable=True)
    return _recorded(keys, policy, call, jobs)


def _recorded(keys: Keys, policy: Policy, call: Call[bool], jobs: Sequence[Coming]) -> Call[bool]:
    if policy.journal is None:
        return call
    payloads = [payload_of(job.envelope) for job in jobs]
    told: list[Arg] = []
    for job, payload in zip(jobs, payloads, strict=True):
        told += (job.id, job.name, payload)
    size = sum(map(len, payloads))
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size, extra=told)


def _stored(policy: Policy, job: Coming) -> bytes:
    if not job.run_at_ms:
        return job.envelope
    try:
        return encode_member(job.name, job.envelope, policy.dialect)
    except InvalidFormat:
        # It came from where names may be longer; our promoters read both dialects.
        return encode_member(job.name, job.envelope, "engine")


def _known(member: bytes) -> tuple[str, str]:
    """Return the job's id and name; neither if nobody can read it."""
    try:
        name, envelope = decode_member(member)
        return decode_envelope(envelope).id, name
    except RemoteProtocolError:
        return "", ""


def _pending(reply: list[Any]) -> int:
    groups = (dict(zip(row[::2], row[1::2], strict=True)) for row in reply)
    return sum(int(group[b"pending"]) for group in groups)


def _added(queue: str, policy: Policy, reply: Any) -> bool:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    if reply == _FULL:
        raise QueueFull(queue, policy.max_stream_len)
    return bool(reply)
