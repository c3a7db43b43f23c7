"""Calls of leaders: the promoter moves due jobs to the stream, the scheduler adds recurring ones.

Each script checks first that its caller still holds the lock: a leader that was frozen until
another took over changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops.add import CONSUMER_PREFIX, EVENTS_CAP, MAX_STREAM_LEN
from tambomq.chasqui.ops.journal import recorded
from tambomq.chasqui.options import DLQ_CAP
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.ids import ulid
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Arg, Call, load_script

LOCK_TTL_S = 5
CLOCKS_APART_MS = 5_000
"""A scheduler whose clock differs from the server's by more than this does not lead."""
BATCH = 128
"""Jobs that one script promotes: about a millisecond."""
DEAD_AFTER_MS = 3_600_000
"""A worker reads every few seconds. One that has not for so long is dead, or its queue paused."""
FIRES = 250
"""Recurring jobs that one script makes at most: a script blocks the server."""

_LEAD = load_script("tambomq.chasqui.ops", "lead")
_RESIGN = load_script("tambomq.chasqui.ops", "resign")
_PROMOTE = load_script("tambomq.chasqui.ops", "promote")
_FIRE = load_script("tambomq.chasqui.ops", "fire")
_FORGET_INDEXES = load_script("tambomq.chasqui.ops", "forget_indexes")
_PRUNE_CONSUMERS = load_script("tambomq.chasqui.ops", "prune_consumers")
_PUT_OFF = load_script("tambomq.chasqui.ops", "put_off")
_DROP_SPEC = load_script("tambomq.chasqui.ops", "drop_spec")


class LeaderConfig(msgspec.Struct, frozen=True):
    """The identity of a leader, its lock's time to live, and the limits of its queue."""

    keys: Keys
    holder: str
    ttl_s: int = LOCK_TTL_S
    batch: int = BATCH
    cap: int = MAX_STREAM_LEN
    dlq_cap: int = DLQ_CAP
    events_cap: int = EVENTS_CAP
    """Length of the events stream; 0 writes no events."""
    journal: JournalPolicy | None = None
    """Which queues have a journal that records repeated jobs; `None` for none."""


class Promotion(msgspec.Struct, frozen=True):
    """The reply of `promote`."""

    ids: list[str]
    """Ids of the promoted jobs; '' for one whose envelope has an unusual form."""
    buried: int
    """Members that no engine can read, moved to the dead-letter queue."""
    delayed: int
    """Jobs that are still delayed: not due, or the stream is full."""
    wait_ms: int | None
    """Time until the next is due; `None` if there is none."""


class LockReply(msgspec.Struct, frozen=True):
    """The reply to an attempt to take or renew a lock."""

    leads: bool
    server_ms: int
    """The server's clock."""


class DueSpec(msgspec.Struct, frozen=True):
    """A repeatable spec that is due."""

    key: str
    fire_at_ms: int


def lead(config: LeaderConfig, lock: str, clock_ms: int | None = None) -> Call[LockReply]:
    """Take or renew the lock, unless another holds it or the clocks differ.

    *clock_ms* is the clock of this machine; `None` does not compare clocks.
    """
    clock = "" if clock_ms is None else clock_ms
    args = (config.holder, config.ttl_s, clock, CLOCKS_APART_MS)
    return Call(_LEAD, (lock,), args, _leading, repeatable=True)


def clock_ahead_ms(asked_ms: int, server_ms: int, answered_ms: int) -> int:
    """Return a lower bound of how far our clock is ahead of the server's; negative if behind.

    The server read its clock between *asked_ms* and *answered_ms* of ours, however long the request
    was under way.
    """
    if server_ms < asked_ms:
        return asked_ms - server_ms
    return min(0, answered_ms - server_ms)


def resign(config: LeaderConfig, lock: str) -> Call[bool]:
    """Release the lock, so that another can lead at once."""
    return Call(_RESIGN, (lock,), (config.holder,), bool, repeatable=True)


def promote(config: LeaderConfig) -> Call[Promotion | None]:
    """Move due jobs from the delayed set to the stream; `None` if another leads."""
    keys = config.keys
    redis_keys = (
        keys.delayed, keys.stream, keys.dlq, keys.promoter_lock, keys.events, keys.previous
    )  # fmt: skip
    args = (
        config.holder, config.ttl_s, config.batch, config.cap, config.dlq_cap, config.events_cap
    )  # fmt: skip
    return Call(_PROMOTE, redis_keys, args, _promotion, repeatable=True)


def forget_indexes(keys: Keys, ids: Sequence[str]) -> Call[int]:
    """Delete the index entries of promoted jobs: they only serve to cancel delayed jobs.

    An entry stays if its id has been scheduled again meanwhile.
    """
    redis_keys = (keys.delayed, *map(keys.index, ids))
    return Call(_FORGET_INDEXES, redis_keys, (), int, repeatable=True)


def prune_consumers(keys: Keys, idle_ms: int = DEAD_AFTER_MS) -> Call[int]:
    """Remove our consumers of killed processes from the groups; returns how many.

    They own no entries and have not read for *idle_ms*. Should one be alive, its next read creates
    it again.
    """
    redis_keys = (keys.stream, keys.signs[3])
    return Call(
        _PRUNE_CONSUMERS, redis_keys, (idle_ms, CONSUMER_PREFIX, RETURNED), int, repeatable=True
    )


def due_specs(config: LeaderConfig, now_ms: int) -> Call[list[DueSpec]]:
    """Return the repeatable specs that are due, the oldest first."""
    args = ("-inf", now_ms, "WITHSCORES", "LIMIT", 0, config.batch)
    return Call("ZRANGEBYSCORE", (config.keys.repeat,), args, _due, repeatable=True)


def late_specs(config: LeaderConfig, after_ms: int, skip: int) -> Call[list[DueSpec]]:
    """Return repeatable specs that are due later than *after_ms*, without the first *skip*."""
    args = (f"({after_ms}", "+inf", "WITHSCORES", "LIMIT", skip, config.batch)
    return Call("ZRANGEBYSCORE", (config.keys.repeat,), args, _due, repeatable=True)


def next_fire(keys: Keys) -> Call[int | None]:
    """Return the time of the next fire of all specs; `None` if there are no specs."""
    return Call("ZRANGE", (keys.repeat,), (0, 0, "WITHSCORES"), _first_score, repeatable=True)


def spec_body(keys: Keys, key: str) -> Call[bytes | None]:
    """Return a spec as stored; `None` if it was removed."""
    return Call("HGET", (_spec(keys, key),), ("spec",), _as_is, repeatable=True)


def skipped_to(keys: Keys, key: str) -> Call[int | None]:
    """Return the fire that an operator has set by skipping those before; `None` if none has."""
    return Call("HGET", (keys.spec(key),), ("skipped_to",), _optional_ms, repeatable=True)


def put_off(config: LeaderConfig, due: DueSpec, until_ms: int) -> Call[bool]:
    """Postpone a spec to *until_ms*; false if another leads, or its time has changed."""
    redis_keys = (config.keys.repeat, config.keys.scheduler_lock)
    args = (config.holder, _raw(due.key), due.fire_at_ms, until_ms)
    return Call(_PUT_OFF, redis_keys, args, bool, repeatable=True)


def fire(
    config: LeaderConfig, spec: RepeatSpec, key: str, was_ms: int, fires: int, next_ms: int, ts: int
) -> Call[tuple[int, bool]]:
    """Add *fires* jobs of *spec*, and set its next fire.

    Returns how many were added (-1 if another leader did it) and whether the spec has ended.
    *next_ms* 0 means that there is no next fire. Raises `JournalFull`, and adds none.
    """
    keys = config.keys
    redis_keys = (
        keys.stream, keys.delayed, keys.repeat, keys.spec(key), keys.scheduler_lock, keys.events,
        keys.unless_queued, keys.previous,
    )  # fmt: skip
    args: list[Arg] = [
        config.holder, key, was_ms, next_ms, spec.limit or 0, spec.end_before_ms or 0,
        config.cap, config.events_cap, ts,
    ]  # fmt: skip
    for _ in range(fires):
        id = ulid(ts)
        body = encode_envelope(Envelope(id, spec.payload, ts, 0, spec.retry))
        # Every promoter reads the engine's dialect.
        args += (id, spec.job_name, body, encode_member(spec.job_name, body, "engine"))
    call = Call(_FIRE, redis_keys, tuple(args), _fired, repeatable=True)
    size = fires * len(spec.payload)
    return recorded(keys, config.journal, call, entries=fires, size=size)


def drop_spec(config: LeaderConfig, key: str, body: bytes, why: str, ts: int) -> Call[bool]:
    """Remove a spec that cannot be decoded; its bytes become a dead letter."""
    keys = config.keys
    redis_keys = (keys.repeat, _spec(keys, key), keys.dlq, keys.events)
    args = (_raw(key), body, config.dlq_cap, config.events_cap, ts, why)
    return Call(_DROP_SPEC, redis_keys, args, bool, repeatable=True)


def _spec(keys: Keys, key: str) -> str:
    # No spec has a key that is not UTF-8.
    return keys.spec(key.encode("utf-8", "replace").decode())


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _leading(reply: list[int]) -> LockReply:
    leads, server_ms = reply
    return LockReply(bool(leads), server_ms)


def _promotion(reply: Any) -> Promotion | None:
    if reply == 0:
        return None
    ids, buried, delayed, wait = reply
    texts = [id.decode("utf-8", "replace") for id in ids]
    return Promotion(texts, buried, delayed, None if wait < 0 else wait)


def _due(reply: list[bytes]) -> list[DueSpec]:
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [DueSpec(key.decode("utf-8", "surrogateescape"), _whole(score)) for key, score in pairs]


def _first_score(reply: list[bytes]) -> int | None:
    return _whole(reply[1]) if reply else None


def _whole(score: bytes) -> int:
    number = float(score)
    # Another client may have written an infinite score: read it as never, or as long ago.
    return int(max(min(number, 2.0**53), 0.0))


def _fired(reply: list[int]) -> tuple[int, bool]:
    made, ended = reply
    return made, bool(ended)


def _as_is(reply: bytes | None) -> bytes | None:
    return reply


def _optional_ms(reply: bytes | None) -> int | None:
    return int(reply) if reply is not None and reply.isdigit() else None
