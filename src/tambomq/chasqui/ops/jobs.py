"""Plans to find, remove and retry a single job, and to list workers.

Only delayed jobs with an id of the caller's have an index. All others are searched for by scripts
that read a part of the queue at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tambomq.chasqui.job import U32, DeadLetter, check_whole
from tambomq.chasqui.job_info import (
    ACTIVE,
    COMPLETED,
    DEAD,
    DELAYED,
    WAITING,
    HeldJob,
    JobInfo,
    WorkerInfo,
)
from tambomq.chasqui.keys import RETURNED, Keys, check_job_id
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops import reports
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.ops.ended_jobs import EndedJobs, first_look_back
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, read_entry
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.chasqui.wire.records import read_dead_letter
from tambomq.errors import JobBusy, RemoteProtocolError, StoreError
from tambomq.ids import ulid_ms
from tambomq.store.call import Call, Plan, load_script, results

TRIES = 3
"""A job may move between being found and being acted on: then it is searched for again."""
_SKEW_MS = 5_000
"""A job's ULID may be so much later than its entry, as clocks differ. The first search begins that
much before it, the second one at the beginning."""

_NO_WORKER_YET = ("NOGROUP", "NOKEY")
"""Kinds of the errors that mean: no worker has ever connected."""

_LOCATE_DELAYED = load_script("tambomq.chasqui.ops", "locate_delayed")
_DROP_ENTRY = load_script("tambomq.chasqui.ops", "drop_entry")
_HELD_BY = load_script("tambomq.chasqui.ops", "held_by")


class DelayedMember(msgspec.Struct, frozen=True):
    """A delayed job, as found."""

    member: bytes
    due_at_ms: int


class StreamEntry(msgspec.Struct, frozen=True):
    """A waiting or running job, as found in the stream."""

    id: str
    fields: Sequence[bytes]


Found: TypeAlias = DelayedMember | StreamEntry | DeadLetter


def get(keys: Keys, group: str, job_id: str) -> Plan[JobInfo | None]:
    """Return the state of a job and what is known of it; `None` if there is no trace of it."""
    found = yield from find(keys, check_job_id(job_id))
    if found is None:
        return (yield from _ended(keys, job_id))
    pending = Call("XPENDING", (keys.stream,), (group, *_range(found), 1), list, repeatable=True)
    outcomes = yield (reports.progress(keys, job_id), pending)
    if isinstance(outcomes[1], StoreError) and outcomes[1].kind in _NO_WORKER_YET:
        outcomes[1] = []
    progress, held = results(outcomes)
    holder = held[0][1].decode("utf-8", "replace") if held else RETURNED
    return _info(found, job_id, progress, None if holder == RETURNED else holder)


def remove(keys: Keys, job_id: str, events_cap: int) -> Plan[bool]:
    """Remove a job; false if there is none. Raises `JobBusy` if a worker runs it."""
    check_job_id(job_id)
    call: Call[Any]
    for _ in range(TRIES):
        found = yield from find(keys, job_id)
        if found is None:
            return False
        if isinstance(found, DelayedMember):
            name, _ = decode_member(found.member)
            call = admin_ops.forget(keys, events_cap, [(found.member, job_id, name)])
        elif isinstance(found, StreamEntry):
            _, name = read_entry(found.fields)
            redis_keys, args = (
                (keys.stream, keys.events),
                (found.id, RETURNED, events_cap, job_id, name),
            )
            call = Call(_DROP_ENTRY, redis_keys, args, _dropped, repeatable=True)
        else:
            call = Call("XDEL", (keys.dlq,), (found.dlq_id,), int, repeatable=True)
        done = results((yield (call,)))[0]
        if isinstance(done, str):
            raise JobBusy(keys.queue, job_id, done)
        if done:
            return True
    return False


def retry(keys: Keys, policy: Policy, job_id: str, now_ms: int) -> Plan[bool]:
    """Replay a dead job, or make a delayed one due now; false if it is neither."""
    check_job_id(job_id)
    for _ in range(TRIES):
        found = yield from find(keys, job_id)
        if isinstance(found, DeadLetter):
            if (yield from dlq_ops.replay_letter(keys, policy, now_ms, found)):
                return True
        elif isinstance(found, DelayedMember):
            args = ("XX", "CH", now_ms, found.member)
            call = Call("ZADD", (keys.delayed,), args, bool, repeatable=True)
            if results((yield (call,)))[0]:
                return True
        else:
            return False
    return False


def workers(keys: Keys, group: str, limit: int) -> Plan[list[WorkerInfo]]:
    """Return the workers of *group*, each with up to *limit* of its jobs."""
    check_whole("limit", limit, U32)
    call = Call(("XINFO", "CONSUMERS"), (keys.stream,), (group,), list, repeatable=True)
    outcomes = yield (call,)
    if isinstance(outcomes[0], StoreError) and outcomes[0].kind in _NO_WORKER_YET:
        return []
    rows = results(outcomes)[0]
    known = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
    known = [row for row in known if row[b"name"] != RETURNED.encode()]
    outcomes = yield [_held_by(keys, group, row[b"name"], limit) for row in known]
    return [
        WorkerInfo(row[b"name"].decode("utf-8", "replace"), row[b"pending"], row[b"idle"], jobs)
        for row, jobs in zip(known, results(outcomes), strict=True)
    ]


def find(keys: Keys, job_id: str) -> Plan[Found | None]:
    """Search in the order in which jobs move; then once more, through the whole stream."""
    made_ms = ulid_ms(job_id)
    first = "0-0" if made_ms is None else f"{max(0, made_ms - _SKEW_MS)}-0"
    for after in (first, "0-0"):
        if (later := (yield from _find_delayed(keys, job_id))) is not None:
            return later
        if (row := (yield from event_ops.find_entry(keys.stream, job_id, after))) is not None:
            return StreamEntry(row[0].decode(), row[1])
        if (row := (yield from event_ops.find_entry(keys.dlq, job_id, after))) is not None:
            return read_dead_letter(*row)
    return None


def _find_delayed(keys: Keys, job_id: str) -> Plan[DelayedMember | None]:
    index = Call("GET", (keys.index(job_id),), (), _as_is, repeatable=True)
    if (member := results((yield (index,)))[0]) is not None:
        score = Call("ZSCORE", (keys.delayed,), (member,), _as_is, repeatable=True)
        if (due := results((yield (score,)))[0]) is not None:
            return DelayedMember(member, int(float(due)))
    cursor = b"0"
    while True:
        args = (cursor, job_id)
        call = Call(_LOCATE_DELAYED, (keys.delayed,), args, list, repeatable=True)
        cursor, *found = results((yield (call,)))[0]
        if found:
            return DelayedMember(found[0], int(float(found[1])))
        if cursor == b"0":
            return None


def _ended(keys: Keys, job_id: str) -> Plan[JobInfo | None]:
    """Return what a stored result or the events say about a job that has left the queue."""
    stored = Call("GET", (keys.result(job_id),), (), _as_is, repeatable=True)
    result, newest = results((yield (stored, event_ops.last_id(keys))))
    if result is not None:
        return JobInfo(job_id, COMPLETED, result=decode_payload(result))
    ends = EndedJobs()
    ends.begin(newest)
    yield from event_ops.look_back(keys, ends, first_look_back(job_id))
    end = ends.of(job_id)
    if end is None or end.is_cancelled:
        return None
    return JobInfo(job_id, COMPLETED if end.reason is None else DEAD, reason=end.reason)


def _info(found: Found, job_id: str, progress: Any, holder: str | None) -> JobInfo:
    if isinstance(found, DeadLetter):
        fields = ("dlq_id", "name", "reason", "error_type", "detail", "traceback")
        more: dict[str, Any] = {field: found[field] for field in fields}
        state, body = DEAD, found.payload
    elif isinstance(found, DelayedMember):
        name, body = decode_member(found.member)
        state, more = DELAYED, {"name": name, "due_at_ms": found.due_at_ms}
    else:
        payload, name = read_entry(found.fields)
        state, body = WAITING if holder is None else ACTIVE, payload or b""
        more = {"name": name, "worker": holder}
    try:
        job = decode_envelope(body)
        more |= {"attempts_made": job.attempt, "created_at_ms": job.created_at_ms}
        more["data"] = decode_payload(job.payload)
    except RemoteProtocolError:
        # Only its id could be read.
        more.setdefault("data", None)
    return JobInfo(job_id, state, progress=progress, **more)


def _range(found: Found) -> Iterator[str]:
    """Return the range for XPENDING: the job's own entry, or an empty one."""
    entry = found.id if isinstance(found, StreamEntry) else "0-1"
    return iter((entry, entry))


def _held_by(keys: Keys, group: str, consumer: bytes, limit: int) -> Call[list[HeldJob]]:
    # A COUNT of 0 means none to some servers and all to others.
    args = (group, consumer, max(1, limit))

    def decode(rows: list[Any]) -> list[HeldJob]:
        return [
            HeldJob(
                id.decode("utf-8", "replace"),
                name.decode("utf-8", "replace"),
                entry.decode(),
                deliveries,
                idle_ms,
            )
            for entry, idle_ms, deliveries, id, name in rows[:limit]
        ]

    return Call(_HELD_BY, (keys.stream,), args, decode, repeatable=True)


def _dropped(reply: int | bytes) -> int | str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply


def _as_is(reply: Any) -> Any:
    return reply
