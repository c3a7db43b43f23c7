"""What leaders ask of Redis, as calls nobody has made yet.

A queue has two: one lets delayed jobs wait for a worker when they are due, one
makes the jobs that recur. A leader that was frozen until another took over
finds that out before it changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops import EVENTS_CAP, MAX_STREAM_LEN, OURS
from tambomq.chasqui.options import DLQ_CAP
from tambomq.chasqui.recorded import recorded
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire import encode_envelope, encode_member
from tambomq.ids import ulid
from tambomq.journal.recording import Bounds
from tambomq.store.call import Arg, Call, load_script

LOCK_TTL_S = 5
CLOCKS_APART_MS = 5_000
"""Whose clock differs from the server's by more than this makes no jobs that recur."""
BATCH = 128
"""So many jobs are promoted by one script, which takes about a millisecond."""
DEAD_AFTER_MS = 3_600_000
"""A worker reads every few seconds: one that has not for so long is dead, or its queue paused."""
FIRES = 250
"""So many jobs are made by one script: it must not keep others waiting."""

_LEAD = load_script("tambomq.chasqui", "lead", "leads")
_RESIGN = load_script("tambomq.chasqui", "resign")
_PROMOTE = load_script("tambomq.chasqui", "promote", "note", "room", "prefix", "leads")
_FIRE = load_script("tambomq.chasqui", "fire", "note", "room")
_FORGET_INDEXES = load_script("tambomq.chasqui", "forget_indexes")
_PRUNE_CONSUMERS = load_script("tambomq.chasqui", "prune_consumers")
_PUT_OFF = load_script("tambomq.chasqui", "put_off")
_DROP_SPEC = load_script("tambomq.chasqui", "drop_spec", "note", "room")


class Office(msgspec.Struct, frozen=True):
    """Who would lead what, and for how long at a time."""

    keys: Keys
    holder: str
    ttl_s: int = LOCK_TTL_S
    batch: int = BATCH
    cap: int = MAX_STREAM_LEN
    dlq_cap: int = DLQ_CAP
    events_cap: int = EVENTS_CAP
    """0 writes no events."""
    journal: Bounds | None = None
    """How much the journal holds; without it what recurs is not recorded."""


class Promotion(msgspec.Struct, frozen=True):
    """What a leader did with the jobs that were due."""

    ids: list[str]
    """Of those that wait for a worker now; '' where it is written in an unusual way."""
    buried: int
    """Members that nobody could have read."""
    delayed: int
    """Still not due, or still here because the stream is full."""
    wait_ms: int | None
    """Until the next is due; `None`: there is none."""


class Leading(msgspec.Struct, frozen=True):
    """What the server says to who would lead."""

    leads: bool
    server_ms: int
    """The time, by the server's clock."""


class Due(msgspec.Struct, frozen=True):
    """A repeatable spec whose time has come."""

    key: str
    fire_at_ms: int


def lead(office: Office, lock: str, clock_ms: int | None = None) -> Call[Leading]:
    """Become or stay the leader, unless another is, or the clocks differ.

    *clock_ms*: the time on this machine; `None` where the server's clock decides alone.
    """
    clock = "" if clock_ms is None else clock_ms
    args = (office.holder, office.ttl_s, clock, CLOCKS_APART_MS)
    return Call(_LEAD, (lock,), args, _leading, repeatable=True)


def clock_ahead_ms(asked_ms: int, server_ms: int, answered_ms: int) -> int:
    """Return by how much our clock is ahead of the server's, at least; negative if it is behind.

    The server looked at its clock between *asked_ms* and *answered_ms* of ours, however long the
    request was under way.
    """
    if server_ms < asked_ms:
        return asked_ms - server_ms
    return min(0, answered_ms - server_ms)


def resign(office: Office, lock: str) -> Call[bool]:
    """Lead no more, so that another can at once."""
    return Call(_RESIGN, (lock,), (office.holder,), bool, repeatable=True)


def promote(office: Office) -> Call[Promotion | None]:
    """Let jobs that are due wait for a worker; `None` if another leads."""
    keys = office.keys
    where = (keys.delayed, keys.stream, keys.dlq, keys.promoter_lock, keys.events)
    args = (
        office.holder, office.ttl_s, office.batch, office.cap, office.dlq_cap, office.events_cap
    )  # fmt: skip
    return Call(_PROMOTE, where, args, _promotion, repeatable=True)


def forget_indexes(keys: Keys, ids: Sequence[str]) -> Call[int]:
    """Forget what only serves to cancel jobs, of jobs that are due.

    An id may have been scheduled anew since it was promoted, under this leader or another.
    """
    where = (keys.delayed, *map(keys.index, ids))
    return Call(_FORGET_INDEXES, where, (), int, repeatable=True)


def prune_consumers(keys: Keys, idle_ms: int = DEAD_AFTER_MS) -> Call[int]:
    """Take consumers of ours out of the groups whose processes were killed; how many.

    They hold nothing, and have not read for *idle_ms*. One that lives is made again by its read.
    """
    where = (keys.stream, keys.signs[3])
    return Call(_PRUNE_CONSUMERS, where, (idle_ms, OURS, RETURNED), int, repeatable=True)


def due_specs(office: Office, now_ms: int) -> Call[list[Due]]:
    """Return the repeatable specs whose time has come, the latest last."""
    args = ("-inf", now_ms, "WITHSCORES", "LIMIT", 0, office.batch)
    return Call("ZRANGEBYSCORE", (office.keys.repeat,), args, _due, repeatable=True)


def late_specs(office: Office, after_ms: int, skip: int) -> Call[list[Due]]:
    """Return repeatable specs that are due later than *after_ms*, without the first *skip*."""
    args = (f"({after_ms}", "+inf", "WITHSCORES", "LIMIT", skip, office.batch)
    return Call("ZRANGEBYSCORE", (office.keys.repeat,), args, _due, repeatable=True)


def next_fire(keys: Keys) -> Call[int | None]:
    """Return when the next repeatable spec fires; `None` if there is none."""
    return Call("ZRANGE", (keys.repeat,), (0, 0, "WITHSCORES"), _first_score, repeatable=True)


def spec_body(keys: Keys, key: str) -> Call[bytes | None]:
    """Return a spec as it is stored; `None` if it is gone."""
    return Call("HGET", (_spec(keys, key),), ("spec",), _as_is, repeatable=True)


def put_off(office: Office, due: Due, until_ms: int) -> Call[bool]:
    """Look at a spec again at *until_ms*; false if another leads, or it is due at another time."""
    where = (office.keys.repeat, office.keys.scheduler_lock)
    args = (office.holder, _raw(due.key), due.fire_at_ms, until_ms)
    return Call(_PUT_OFF, where, args, bool, repeatable=True)


def fire(
    office: Office, spec: RepeatSpec, key: str, was_ms: int, fires: int, next_ms: int, ts: int
) -> Call[tuple[int, bool]]:
    """Make *fires* jobs of *spec*; how many were made (-1: another has), and whether it has ended.

    *next_ms* 0 means that there is no next time. Raises `JournalFull`, and makes none.
    """
    keys = office.keys
    where = (
        keys.stream, keys.delayed, keys.repeat, keys.spec(key), keys.scheduler_lock, keys.events
    )  # fmt: skip
    args: list[Arg] = [
        office.holder, key, was_ms, next_ms, spec.limit or 0, spec.end_before_ms or 0,
        office.cap, office.events_cap, ts,
    ]  # fmt: skip
    for _ in range(fires):
        id = ulid(ts)
        body = encode_envelope(Envelope(id, spec.payload, ts, 0, spec.retry))
        # Whoever promotes it reads the engine's dialect.
        args += (id, spec.job_name, body, encode_member(spec.job_name, body, "engine"))
    call = Call(_FIRE, where, tuple(args), _fired, repeatable=True)
    size = fires * len(spec.payload)
    return recorded(keys, office.journal, call, entries=fires, size=size)


def drop_spec(office: Office, key: str, body: bytes, why: str, ts: int) -> Call[bool]:
    """Take out a spec that cannot be read; what there is of it becomes a dead letter."""
    keys = office.keys
    where = (keys.repeat, _spec(keys, key), keys.dlq, keys.events)
    args = (_raw(key), body, office.dlq_cap, office.events_cap, ts, why)
    return Call(_DROP_SPEC, where, args, bool, repeatable=True)


def _spec(keys: Keys, key: str) -> str:
    # A key that is no UTF-8 is nobody's: there is no such spec.
    return keys.spec(key.encode("utf-8", "replace").decode())


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _leading(reply: list[int]) -> Leading:
    leads, server_ms = reply
    return Leading(bool(leads), server_ms)


def _promotion(reply: Any) -> Promotion | None:
    if reply == 0:
        return None
    ids, buried, delayed, wait = reply
    texts = [id.decode("utf-8", "replace") for id in ids]
    return Promotion(texts, buried, delayed, None if wait < 0 else wait)


def _due(reply: list[bytes]) -> list[Due]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [Due(key.decode("utf-8", "surrogateescape"), _whole(score)) for key, score in pairs]


def _first_score(reply: list[bytes]) -> int | None:
    return _whole(reply[1]) if reply else None


def _whole(score: bytes) -> int:
    number = float(score)
    # An infinite score is nobody's next fire: never, or long ago.
    return int(max(min(number, 2.0**53), 0.0))


def _fired(reply: list[int]) -> tuple[int, bool]:
    made, ended = reply
    return made, bool(ended)


def _as_is(reply: bytes | None) -> bytes | None:
    return reply
