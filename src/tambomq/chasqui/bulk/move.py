"""Calls and plans that move ChasquiMQ jobs to another queue (see `tambomq.bulk.moves`).

Waiting and delayed jobs are moved, and an event is written for each that has left. Dead letters,
repeatable specs and results stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tambomq.bulk import moves
from tambomq.bulk.moves import MAX_BYTES, MAX_MESSAGES, MoveBatch
from tambomq.chasqui.bulk import scan as scan_ops
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.ops.journal import payload_of, recorded
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, encode_member
from tambomq.errors import ForeignLeader, InvalidFormat, QueueFull, RemoteProtocolError
from tambomq.store.call import Arg, Call, Plan, load_script, results

_TAKE = load_script("tambomq.chasqui.bulk", "move_take")
_TAKE_LATER = load_script("tambomq.chasqui.bulk", "move_take_later")
_PUT = load_script("tambomq.chasqui.bulk", "move_put")

_FULL = -3
_UNKNOWN = "?"


class OutboundJob(msgspec.Struct, frozen=True):
    """A job as it left its queue."""

    envelope: bytes
    name: str
    due_ms: int = 0
    """When it is due; 0 if it waited."""
    taken_ms: int = 0
    """For how many milliseconds its id stays reserved; 0 if it is not."""


class InboundJob(msgspec.Struct, frozen=True):
    """A job to be added to the target queue."""

    id: str
    name: str
    envelope: bytes
    run_at_ms: int = 0
    """When it is due; 0 for now."""
    taken_ms: int = 0


def take(keys: Keys, events_cap: int, id: str, run: str) -> Call[MoveBatch]:
    """Take a batch of waiting jobs that no worker holds; or return the batch in transit."""
    call_keys = (keys.stream, keys.move(id), keys.transit(id), keys.events)
    args = (run, MAX_MESSAGES, MAX_BYTES, RETURNED, events_cap)
    return Call(_TAKE, call_keys, args, moves.batch, repeatable=True)


def take_later(keys: Keys, events_cap: int, id: str, run: str) -> Plan[MoveBatch]:
    """Take a batch of delayed jobs, the first due first; or return the batch in transit."""
    page = scan_ops.members(keys.delayed, "-inf", "+inf", 0, MAX_MESSAGES)
    members, _ = results((yield (page,)))[0]
    call_keys = [keys.delayed, keys.move(id), keys.transit(id), keys.events]
    bytes_left, words = MAX_BYTES, list[Arg]([run, events_cap])
    for member in members:
        if bytes_left <= 0:
            break
        job, name = _job_of(member)
        call_keys += (keys.marker(job or _UNKNOWN), keys.index(job or _UNKNOWN))
        words += (member, job, name)
        bytes_left -= len(member)
    call = Call(_TAKE_LATER, tuple(call_keys), tuple(words), moves.batch, repeatable=True)
    taken: MoveBatch = results((yield (call,)))[0]
    return taken


def in_flight(keys: Keys) -> Plan[int]:
    """Return how many jobs the workers of all groups hold."""
    listed = Call("XINFO GROUPS", (keys.stream,), (), _pending, repeatable=True)
    # Redis replies with an error if there is no stream.
    outcome = (yield (listed,))[0]
    return outcome if isinstance(outcome, int) else 0


def decode_outbound(row: tuple[bytes, bytes]) -> OutboundJob:
    """Return the job in a row of a batch."""
    head, body = row
    if head[:2] == b"w ":
        return OutboundJob(body, head[2:].decode("utf-8", "replace"))
    _, due, taken = head.split(b" ")
    try:
        name, envelope = decode_member(body)
    except RemoteProtocolError:
        name, envelope = "", body
    return OutboundJob(envelope, name, max(1, int(due)), int(taken))


def put(
    keys: Keys,
    policy: Policy,
    query: str,
    number: int,
    checksum: str,
    ts: int,
    jobs: Sequence[InboundJob],
) -> Call[bool]:
    """Add the jobs of batch *number*; false if they were added before.

    Raises `QueueFull`, `JournalFull` or `ForeignLeader`, and adds nothing. Ids are not
    deduplicated: each job that left its queue is added.
    """
    waiting = sum(not job.run_at_ms for job in jobs)
    call_keys = [keys.stream, keys.events, keys.delayed, keys.fence(query), *keys.signs]
    bound = (policy.max_stream_len, policy.events_cap, ts, policy.dialect, waiting)
    words: list[Arg] = [number, checksum, *bound]
    for job in jobs:
        body = _stored(policy, job)
        head = len(body) - len(job.envelope)
        words += (job.id, job.name, job.run_at_ms or "", job.taken_ms, head, body)
        if job.run_at_ms and job.taken_ms:
            call_keys += (keys.marker(job.id), keys.index(job.id))
    decode = partial(_added, keys.queue, policy)
    call = Call(_PUT, tuple(call_keys), tuple(words), decode, repeatable=True)
    return _recorded(keys, policy, call, jobs)


def _recorded(
    keys: Keys, policy: Policy, call: Call[bool], jobs: Sequence[InboundJob]
) -> Call[bool]:
    if policy.journal is None:
        return call
    payloads = [payload_of(job.envelope) for job in jobs]
    size = sum(map(len, payloads))
    return recorded(keys, policy.journal, call, entries=len(jobs), size=size, payloads=payloads)


def _stored(policy: Policy, job: InboundJob) -> bytes:
    if not job.run_at_ms:
        return job.envelope
    try:
        return encode_member(job.name, job.envelope, policy.dialect)
    except InvalidFormat:
        # The source's dialect allows longer names; TamboMQ's promoters read both dialects.
        return encode_member(job.name, job.envelope, "engine")


def _job_of(member: bytes) -> tuple[str, str]:
    """Return the job's id and name; both empty if it cannot be decoded."""
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
