"""What is asked of Redis about one job and about workers, as plans nobody has followed yet.

Only delayed jobs that were added under an id have an index. All others are looked for, by scripts
that read a part of the queue at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tambomq.chasqui import admin_ops, dlq_ops, event_ops, ops
from tambomq.chasqui.ends import Ends, first_look
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
from tambomq.chasqui.ops import Policy
from tambomq.chasqui.packing import decode_payload
from tambomq.chasqui.wire import decode_envelope, decode_member, read_entry
from tambomq.chasqui.wire_records import read_dead_letter
from tambomq.errors import JobBusy, RemoteProtocolError, TamboError
from tambomq.ids import ulid_ms
from tambomq.store.call import Call, Plan, load_script, results

TRIES = 3
"""So often is a job looked for that moved on between being found and being acted on."""
_SKEW_MS = 5_000
"""So much may a producer's clock be ahead of the server's; beyond that the second look finds it."""

_NOBODY = ("NOGROUP", "ERR no such key")
"""So begin the errors that tell that no worker has ever been there."""

_LOCATE = load_script("tambomq.chasqui", "locate", "prefix")
_LOCATE_DELAYED = load_script("tambomq.chasqui", "locate_delayed", "prefix")
_DROP_ENTRY = load_script("tambomq.chasqui", "drop_entry", "note", "cancelled")
_HELD_BY = load_script("tambomq.chasqui", "held_by", "prefix")


class Later(msgspec.Struct, frozen=True):
    """A job that was found among the delayed ones."""

    member: bytes
    due_at_ms: int


class Entry(msgspec.Struct, frozen=True):
    """A job that was found in the stream."""

    id: str
    fields: Sequence[bytes]


Found: TypeAlias = Later | Entry | DeadLetter


def get(keys: Keys, group: str, job_id: str) -> Plan[JobInfo | None]:
    """Return where a job is and what is known of it; `None` if nothing is."""
    found = yield from _find(keys, check_job_id(job_id))
    if found is None:
        return (yield from _ended(keys, job_id))
    pending = Call("XPENDING", (keys.stream,), (group, *_range(found), 1), list, repeatable=True)
    outcomes = yield (ops.progress(keys, job_id), pending)
    if isinstance(outcomes[1], TamboError) and str(outcomes[1]).startswith(_NOBODY):
        outcomes[1] = []
    progress, held = results(outcomes)
    holder = held[0][1].decode("utf-8", "replace") if held else RETURNED
    return _info(found, job_id, progress, None if holder == RETURNED else holder)


def remove(keys: Keys, job_id: str, events_cap: int) -> Plan[bool]:
    """Forget a job that no worker has; false if there is none. Raises `JobBusy`."""
    check_job_id(job_id)
    call: Call[Any]
    for _ in range(TRIES):
        found = yield from _find(keys, job_id)
        if found is None:
            return False
        if isinstance(found, Later):
            name, _ = decode_member(found.member)
            call = admin_ops.forget(keys, events_cap, [(found.member, job_id, name)])
        elif isinstance(found, Entry):
            _, name = read_entry(found.fields)
            where, args = (keys.stream, keys.events), (found.id, RETURNED, events_cap, job_id, name)
            call = Call(_DROP_ENTRY, where, args, _dropped, repeatable=True)
        else:
            call = Call("XDEL", (keys.dlq,), (found.dlq_id,), int, repeatable=True)
        done = results((yield (call,)))[0]
        if isinstance(done, str):
            raise JobBusy(keys.queue, job_id, done)
        if done:
            return True
    return False


def retry(keys: Keys, policy: Policy, job_id: str, now_ms: int) -> Plan[bool]:
    """Let a dead job wait for a worker again, or a delayed one be due; false if it is neither."""
    check_job_id(job_id)
    for _ in range(TRIES):
        found = yield from _find(keys, job_id)
        if isinstance(found, DeadLetter):
            if (yield from dlq_ops.replay_letter(keys, policy, now_ms, found)):
                return True
        elif isinstance(found, Later):
            args = ("XX", "CH", now_ms, found.member)
            call = Call("ZADD", (keys.delayed,), args, bool, repeatable=True)
            if results((yield (call,)))[0]:
                return True
        else:
            return False
    return False


def workers(keys: Keys, group: str, limit: int) -> Plan[list[WorkerInfo]]:
    """Return the group's workers, each with up to *limit* jobs that it has."""
    check_whole("limit", limit, U32)
    call = Call(("XINFO", "CONSUMERS"), (keys.stream,), (group,), list, repeatable=True)
    outcomes = yield (call,)
    if isinstance(outcomes[0], TamboError) and str(outcomes[0]).startswith(_NOBODY):
        return []
    rows = results(outcomes)[0]
    known = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
    known = [row for row in known if row[b"name"] != RETURNED.encode()]
    outcomes = yield [_held_by(keys, group, row[b"name"], limit) for row in known]
    return [
        WorkerInfo(row[b"name"].decode("utf-8", "replace"), row[b"pending"], row[b"idle"], jobs)
        for row, jobs in zip(known, results(outcomes), strict=True)
    ]


def _find(keys: Keys, job_id: str) -> Plan[Found | None]:
    """Look where the job may be, in the order in which jobs go; and once more from the start."""
    made_ms = ulid_ms(job_id)
    first = "0-0" if made_ms is None else f"{max(0, made_ms - _SKEW_MS)}-0"
    for after in (first, "0-0"):
        if (later := (yield from _find_delayed(keys, job_id))) is not None:
            return later
        if (row := (yield from _find_entry(keys.stream, job_id, after))) is not None:
            return Entry(row[0].decode(), row[1])
        if (row := (yield from _find_entry(keys.dlq, job_id, after))) is not None:
            return read_dead_letter(*row)
    return None


def _find_delayed(keys: Keys, job_id: str) -> Plan[Later | None]:
    index = Call("GET", (keys.index(job_id),), (), _as_is, repeatable=True)
    if (member := results((yield (index,)))[0]) is not None:
        score = Call("ZSCORE", (keys.delayed,), (member,), _as_is, repeatable=True)
        if (due := results((yield (score,)))[0]) is not None:
            return Later(member, int(float(due)))
    cursor = b"0"
    while True:
        args = (cursor, job_id)
        call = Call(_LOCATE_DELAYED, (keys.delayed,), args, list, repeatable=True)
        cursor, *found = results((yield (call,)))[0]
        if found:
            return Later(found[0], int(float(found[1])))
        if cursor == b"0":
            return None


def _find_entry(stream: str, job_id: str, after: str | bytes) -> Plan[list[Any] | None]:
    while True:
        call = Call(_LOCATE, (stream,), (after, job_id), _as_is, repeatable=True)
        found = results((yield (call,)))[0]
        if not isinstance(found, bytes):
            return found or None
        after = found


def _ended(keys: Keys, job_id: str) -> Plan[JobInfo | None]:
    """What a result or the events tell of a job that is not there any more."""
    stored = Call("GET", (keys.result(job_id),), (), _as_is, repeatable=True)
    result, newest = results((yield (stored, event_ops.last_id(keys))))
    if result is not None:
        return JobInfo(job_id, COMPLETED, result=decode_payload(result))
    ends = Ends()
    ends.begin(newest)
    yield from event_ops.look_back(keys, ends, first_look(job_id))
    end = ends.of(job_id)
    if end is None:
        return None
    return JobInfo(job_id, COMPLETED if end.reason is None else DEAD, reason=end.reason)


def _info(found: Found, job_id: str, progress: int | None, holder: str | None) -> JobInfo:
    if isinstance(found, DeadLetter):
        told = ("dlq_id", "name", "reason", "error_type", "detail", "traceback")
        more: dict[str, Any] = {field: found[field] for field in told}
        state, body = DEAD, found.payload
    elif isinstance(found, Later):
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
        # Its id could be read, and the rest is not as it should be.
        more.setdefault("data", None)
    return JobInfo(job_id, state, progress=progress, **more)


def _range(found: Found) -> Iterator[str]:
    """Which entries may be pending: the job's own, or none at all."""
    entry = found.id if isinstance(found, Entry) else "0-1"
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
