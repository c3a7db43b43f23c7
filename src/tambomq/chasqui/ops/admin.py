"""Calls and plans of operators: count, pause, drain, clean, delete and list queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tambomq.chasqui.job import U64, Envelope, JobCounts, check_whole
from tambomq.chasqui.keys import ANY_QUEUE, RETURNED, Keys, queue_of
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.errors import InvalidFormat, QueueBusy, RemoteProtocolError, StoreError, TamboError
from tambomq.ids import ulid
from tambomq.store.call import Arg, Call, Plan, load_script, results

CHUNK = 500
"""Entries that one script drops at most: a script blocks the server."""
STATES = ("dlq", "waiting", "delayed")

_DROP_WAITING = load_script("tambomq.chasqui.ops", "drop_waiting")
_DROP_DELAYED = load_script("tambomq.chasqui.ops", "drop_delayed")
_PAUSE = load_script("tambomq.chasqui.ops", "pause")
_RESUME = load_script("tambomq.chasqui.ops", "resume")
_SWEEP = load_script("tambomq.chasqui.ops", "sweep")


def counts(keys: Keys, group: str) -> Plan[JobCounts]:
    """Return how many jobs are in each state, in one round trip."""

    def ask(verb: str, key: str, *args: str | int) -> Call[Any]:
        return Call(verb, (key,), args, _as_is, repeatable=True)

    outcomes = yield (
        ask("XLEN", keys.stream),
        ask("XPENDING", keys.stream, group),
        ask("XLEN", keys.dlq),
        ask("ZCARD", keys.delayed),
        ask("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
        ask("ZCARD", keys.repeat),
        ask("EXISTS", keys.paused),
        Call("TIME", (), (), _as_is, repeatable=True),
    )
    pending = outcomes[1]
    has_group = not (isinstance(pending, StoreError) and pending.kind == "NOGROUP")
    if has_group and isinstance(pending, TamboError):
        raise pending
    outcomes[1] = _active(pending) if has_group else 0
    length, active, dead, delayed, first, repeatable, paused, time = results(outcomes)
    now_ms = int(time[0]) * 1000 + int(time[1]) // 1000
    lag_ms = max(0, now_ms - int(float(first[1]))) if first else None
    waiting = max(0, length - active)
    return JobCounts(waiting, active, delayed, dead, repeatable, lag_ms, bool(paused), has_group)


def _active(pending: Any) -> int:
    """Return how many entries workers own; those given back count as waiting."""
    total, _, _, consumers = pending
    returned = dict(consumers or ()).get(RETURNED.encode(), 0)
    return int(total) - int(returned)


def pause(keys: Keys) -> Call[bool]:
    """Make workers start no more jobs, until `resume`; survives restarts."""
    return Call(_PAUSE, (keys.paused, keys.requests), (ulid(0),), bool, repeatable=True)


def resume(keys: Keys) -> Call[bool]:
    """Resume the queue; false if it was not paused."""
    return Call(_RESUME, (keys.paused, keys.requests), (ulid(0),), bool, repeatable=True)


def exists(keys: Keys) -> Call[bool]:
    """Return whether the queue has any of the keys by which queues are found."""
    return Call("EXISTS", keys.traces, (), bool, repeatable=True)


def drain(
    keys: Keys, group: str, events_cap: int = 0, *, delayed: bool, limit: int = U64
) -> Plan[int]:
    """Remove waiting jobs, then *delayed* ones if true, up to *limit*; return how many."""
    dropped = yield from _drop_waiting(keys, group, events_cap, "+", limit)
    if delayed:
        dropped += yield from _drop_delayed(keys, events_cap, None, limit - dropped)
    return dropped


def clean(
    keys: Keys, group: str, events_cap: int = 0, *, before_ms: int, limit: int, state: str
) -> Plan[int]:
    """Remove up to *limit* jobs of a *state* that are older than *before_ms*; return how many."""
    if state not in STATES:
        raise InvalidFormat("state", state, f"one of {', '.join(STATES)}")
    check_whole("limit", limit, U64)
    if state == "waiting":
        return (yield from _drop_waiting(keys, group, events_cap, f"({before_ms}-0", limit))
    if state == "dlq":
        return (yield from _drop_letters(keys, before_ms, limit))
    return (yield from _drop_delayed(keys, events_cap, before_ms, limit))


def obliterate(keys: Keys, group: str, *, force: bool) -> Plan[int]:
    """Delete all keys of the queue; return how many.

    Raises `QueueBusy` while jobs run, unless *force*.
    """
    found = yield from counts(keys, group)
    if found.active and not force:
        raise QueueBusy(keys.queue, found.active)
    cursor, deleted = b"0", 0
    while True:
        args = (cursor, keys.pattern)
        outcomes = yield (Call(_SWEEP, (keys.stream,), args, _as_is),)
        cursor, count = results(outcomes)[0]
        deleted += int(count)
        if cursor == b"0":
            return deleted


def queues() -> Plan[list[str]]:
    """Return the names of all queues on a server; on a cluster, on one node."""
    cursor, found = b"0", set()
    while True:
        args = (cursor, "MATCH", ANY_QUEUE, "COUNT", 1000)
        outcomes = yield (Call("SCAN", (), args, _as_is, repeatable=True),)
        cursor, names = results(outcomes)[0]
        found |= {queue for name in names if (queue := queue_of(_name(name)))}
        if cursor == b"0":
            return sorted(found)


def release_dead(context: ConsumerContext, idle_ms: int) -> Plan[int]:
    """Give back the jobs of a consumer that is known to be dead, and remove it; return how many.

    Otherwise as if their leases of *idle_ms* had run out: this delivery counts. Only those that
    were delivered once: a job that has outlived a worker before may be what kills them, so its
    lease has to run out each time.
    """
    released, given = 0, -1
    while given:
        args = (context.group, "-", "+", CHUNK, context.consumer)
        pending = Call("XPENDING", (context.keys.stream,), args, _deliveries, repeatable=True)
        rows = results((yield (pending,)))[0]
        first = [(entry, count) for entry, count in rows if count == 1]
        given = results((yield (worker_ops.give_back(context, first, idle_ms),)))[0] if first else 0
        released += given
    results((yield (worker_ops.leave(context),)))
    return released


def _deliveries(rows: Any) -> list[tuple[str, int]]:
    return [(row[0].decode(), int(row[3])) for row in rows]


def _drop_waiting(keys: Keys, group: str, events_cap: int, until: str, limit: int) -> Plan[int]:
    dropped, redis_keys = 0, (keys.stream, keys.events)
    while dropped < limit:
        args = (group, until, min(CHUNK, limit - dropped), RETURNED, events_cap)
        outcomes = yield (Call(_DROP_WAITING, redis_keys, args, int, repeatable=True),)
        count = results(outcomes)[0]
        dropped += count
        if not count:
            break
    return dropped


def _drop_letters(keys: Keys, before_ms: int, limit: int) -> Plan[int]:
    dropped = 0
    while dropped < limit:
        args = ("-", f"({before_ms}-0", "COUNT", min(CHUNK, limit - dropped))
        outcomes = yield (Call("XRANGE", (keys.dlq,), args, list, repeatable=True),)
        rows = results(outcomes)[0]
        if not rows:
            break
        ids = tuple(row[0] for row in rows)
        dropped += results((yield (Call("XDEL", (keys.dlq,), ids, int, repeatable=True),)))[0]
    return dropped


def _drop_delayed(keys: Keys, events_cap: int, before_ms: int | None, limit: int) -> Plan[int]:
    """Remove delayed jobs older than *before_ms*, or all; their ids can be scheduled again."""
    dropped = first = 0
    while dropped < limit:
        args = (first, first + CHUNK - 1)
        outcomes = yield (Call("ZRANGE", (keys.delayed,), args, list, repeatable=True),)
        members = results(outcomes)[0]
        if not members:
            break
        found = [(member, *_read(member)) for member in members]
        old = [row for row in found if before_ms is None or _is_before(row[2], before_ms)]
        del old[limit - dropped :]
        first += len(members) - len(old)
        if old:
            rows = [(member, job.id if job else "", name) for member, name, job in old]
            dropped += results((yield (forget(keys, events_cap, rows),)))[0]
    return dropped


def forget(keys: Keys, events_cap: int, rows: Sequence[tuple[bytes, str, str]]) -> Call[int]:
    """Remove delayed jobs, given member, id and name of each; returns how many were there."""
    redis_keys, words = [keys.delayed, keys.events], list[Arg]()
    for member, id, name in rows:
        redis_keys += (keys.marker(id), keys.index(id))
        words += (member, id, name)
    return Call(_DROP_DELAYED, tuple(redis_keys), (events_cap, *words), int, repeatable=True)


def _read(member: bytes) -> tuple[str, Envelope | None]:
    """Return the name and the envelope of a delayed job; `None` if it cannot be decoded."""
    try:
        name, body = decode_member(member)
        return name, decode_envelope(body)
    except RemoteProtocolError:
        return "", None


def _is_before(job: Envelope | None, before_ms: int) -> bool:
    return job is not None and job.created_at_ms < before_ms


def _name(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _as_is(reply: Any) -> Any:
    return reply
