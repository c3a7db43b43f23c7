"""Calls and plans for repeatable jobs: create, remove and list their specs."""

from __future__ import annotations

from functools import partial
from hashlib import sha1
from typing import Any

from tambomq.chasqui.job import U64, RetryOverride, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.repeat import SKIP, RepeatableMeta, RepeatSpec
from tambomq.chasqui.schedule.cron import check_pattern, next_fire_ms
from tambomq.chasqui.wire.repeat import decode_spec, encode_spec
from tambomq.errors import InvalidValue, RemoteProtocolError, StoreUnavailable, TamboError
from tambomq.ids import ulid
from tambomq.store.call import Call, Plan, load_script, results

_UPSERT = load_script("tambomq.chasqui.ops", "upsert")
_REMOVE = load_script("tambomq.chasqui.ops", "remove_spec")


def upsert(keys: Keys, spec: RepeatSpec, now_ms: int, dialect: str = "auto") -> Call[bool]:
    """Create *spec*, or replace the one with its key; it fires from *now_ms* on.

    A released engine drops a spec with a retry override. So such a spec is refused with
    `InvalidValue` if an engine shares the queue and *dialect* is ``auto``.
    """
    check_pattern(spec.pattern)
    for what in ("limit", "start_after_ms", "end_before_ms"):
        if (value := getattr(spec, what)) is not None:
            check_whole(what, value, U64)
    next_ms = next_fire_ms(spec.pattern, now_ms, spec.start_after_ms)
    if next_ms is None:
        raise InvalidValue("repeat", spec.pattern.expression, "a pattern that matches some time")
    if spec.end_before_ms is not None and next_ms > spec.end_before_ms:
        raise InvalidValue("end_before_ms", spec.end_before_ms, "not before the first fire")
    redis_keys = (
        keys.repeat, keys.spec(spec.key), keys.stream, *keys.signs[:4], keys.requests,
        keys.unless_queued, keys.previous,
    )  # fmt: skip
    alone = int(dialect == "auto" and spec.retry is not None)
    body, skips = encode_spec(spec, dialect), int(spec.unless_queued)
    args = (spec.key, next_ms, body, alone, skips, ulid(0))
    return Call(_UPSERT, redis_keys, args, partial(_upserted, spec), repeatable=True)


def remove(keys: Keys, key: str) -> Call[bool]:
    """Remove a spec; false if there is none with this key."""
    redis_keys = (
        keys.repeat, keys.spec(key), keys.requests, keys.unless_queued, keys.previous
    )  # fmt: skip
    return Call(_REMOVE, redis_keys, (key, ulid(0)), bool, repeatable=True)


def listing(keys: Keys, limit: int) -> Plan[list[RepeatableMeta]]:
    """Return the specs, the next to fire first, without those that cannot be decoded."""
    if check_whole("limit", limit, U64) == 0:
        return []
    args = (0, limit - 1, "WITHSCORES")
    outcomes = yield (Call("ZRANGE", (keys.repeat,), args, list, repeatable=True),)
    flat = results(outcomes)[0]
    if not flat:
        return []
    # No spec has a key that is not UTF-8.
    names = [key.decode("utf-8", "replace") for key in flat[::2]]
    digests, *bodies = yield [
        Call("HMGET", (keys.unless_queued,), tuple(names), list, repeatable=True),
        *(
            Call("HMGET", (keys.spec(key),), ("spec", "fired"), list, repeatable=True)
            for key in names
        ),
    ]
    found = zip(names, flat[1::2], bodies, results([digests])[0], strict=True)
    return [meta for row in found if (meta := _meta(*row)) is not None]


def _digest(body: bytes) -> bytes:
    """Return the digest of a stored spec that `Keys.unless_queued` has."""
    return sha1(body, usedforsecurity=False).hexdigest().encode()


def _upserted(spec: RepeatSpec, reply: int) -> bool:
    if not reply:
        rule = "left out where a released engine shares the queue: it would drop the repeatable job"
        raise InvalidValue("attempts and backoff", spec.retry, rule)
    return True


def _meta(key: str, score: bytes, body: Any, known: bytes | None) -> RepeatableMeta | None:
    if isinstance(body, StoreUnavailable):
        raise body
    if isinstance(body, TamboError) or body[0] is None:
        return None
    try:
        spec = decode_spec(body[0])
    except RemoteProtocolError:
        return None
    retry = spec.retry or RetryOverride()
    return RepeatableMeta(
        key,
        spec.job_name,
        spec.pattern,
        int(float(score)),
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        None if spec.missed_fires == SKIP else spec.missed_fires,
        int(body[1] or 0),
        known is not None and known[:40] == _digest(body[0]),
        retry.max_attempts,
        retry.backoff,
    )
