"""The contents of a queue, as an independent client reads them."""

from __future__ import annotations

from typing import Any, cast

import redis

from tambomq.chasqui.job import Envelope, QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.chasqui.wire.records import read_event

Row = tuple[str, list[bytes]]


def rows(db: redis.Redis, key: str) -> list[Row]:
    """The entries of a stream: id, and fields and values in turn, in their order."""
    # By a script, because redis-py makes a dict of the fields.
    found = cast("Any", db.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, key))
    return [(id.decode(), fields) for id, fields in found]


def jobs(db: redis.Redis, keys: Keys) -> list[tuple[str, Envelope]]:
    """Name and envelope of each job in the stream."""
    found = []
    for _, fields in rows(db, keys.stream):
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        found.append((named.get(b"n", b"").decode(), decode_envelope(named[b"d"])))
    return found


def ids(db: redis.Redis, keys: Keys) -> list[str]:
    """The ids of the jobs in the stream."""
    return [envelope.id for _, envelope in jobs(db, keys)]


def delayed(db: redis.Redis, keys: Keys) -> list[tuple[str, Envelope, int]]:
    """Name, envelope and time of each delayed job, the first to come first."""
    found = []
    for member, score in cast("Any", db.zrange(keys.delayed, 0, -1, withscores=True)):
        name, body = decode_member(member)
        found.append((name, decode_envelope(body), int(score)))
    return found


def events(db: redis.Redis, keys: Keys) -> list[QueueEvent]:
    """Return all events, the oldest first."""
    return [read_event(id.encode(), fields) for id, fields in rows(db, keys.events)]


def emitted_events(db: redis.Redis, keys: Keys) -> list[tuple[str, str | None]]:
    """Return name and job id of all events, the oldest first."""
    return [(event.name, event.job_id) for event in events(db, keys)]


def bury(db: redis.Redis, keys: Keys, body: bytes, name: str = "", reason: str = "x") -> str:
    """Put a dead letter into the queue, as a worker does; return its id."""
    named: dict[Any, Any] = {"n": name} if name else {}
    fields: dict[Any, Any] = {"d": body, **named, "source_id": "1-0", "reason": reason}
    return cast("bytes", db.xadd(keys.dlq, fields)).decode()


def has_event_reader(db: redis.Redis) -> bool:
    """Return whether a client waits for the next event."""
    return any(each["cmd"] == "xread" for each in cast("Any", db.client_list()))
