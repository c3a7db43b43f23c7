"""What those who let jobs recur ask of Redis, as calls and plans nobody has made yet."""

from __future__ import annotations

from functools import partial
from typing import Any

from tambomq.chasqui.cron import check_pattern, next_fire_ms
from tambomq.chasqui.job import U64, check_whole
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.repeat import SKIP, RepeatableMeta, RepeatSpec
from tambomq.chasqui.wire_repeat import decode_spec, encode_spec
from tambomq.errors import InvalidValue, RemoteProtocolError, StoreUnavailable, TamboError
from tambomq.ids import ulid
from tambomq.store.call import Call, Plan, load_script, results

_UPSERT = load_script("tambomq.chasqui", "upsert", "prefix", "dialect", "seen")
_REMOVE = load_script("tambomq.chasqui", "remove_spec", "seen")


def upsert(keys: Keys, spec: RepeatSpec, now_ms: int, dialect: str = "auto") -> Call[bool]:
    """Let *spec* recur from *now_ms* on, as new or instead of what has its key.

    A spec with retries of its own is dropped by a released engine. So it is refused, with
    `InvalidValue`, where one shares the queue and *dialect* is ``auto``.
    """
    check_pattern(spec.pattern)
    for what in ("limit", "start_after_ms", "end_before_ms"):
        if (value := getattr(spec, what)) is not None:
            check_whole(what, value, U64)
    next_ms = next_fire_ms(spec.pattern, now_ms, spec.start_after_ms)
    if next_ms is None:
        raise InvalidValue("repeat", spec.pattern.expression, "a pattern that comes to pass")
    if spec.end_before_ms is not None and next_ms > spec.end_before_ms:
        raise InvalidValue("end_before_ms", spec.end_before_ms, "not before the first fire")
    where = (keys.repeat, keys.spec(spec.key), keys.stream, *keys.signs[:4], keys.requests)
    alone = int(dialect == "auto" and spec.retry is not None)
    args = (spec.key, next_ms, encode_spec(spec, dialect), alone, ulid(0))
    return Call(_UPSERT, where, args, partial(_upserted, spec), repeatable=True)


def remove(keys: Keys, key: str) -> Call[bool]:
    """Let a job recur no more; false if there is no such spec."""
    where = (keys.repeat, keys.spec(key), keys.requests)
    return Call(_REMOVE, where, (key, ulid(0)), bool, repeatable=True)


def listing(keys: Keys, limit: int) -> Plan[list[RepeatableMeta]]:
    """Return what recurs, the next to fire first; what cannot be read is left out."""
    if check_whole("limit", limit, U64) == 0:
        return []
    args = (0, limit - 1, "WITHSCORES")
    outcomes = yield (Call("ZRANGE", (keys.repeat,), args, list, repeatable=True),)
    flat = results(outcomes)[0]
    if not flat:
        return []
    # A key that is no UTF-8 is nobody's: there is no such spec.
    names = [key.decode("utf-8", "replace") for key in flat[::2]]
    bodies = yield [
        Call("HMGET", (keys.spec(key),), ("spec", "fired"), list, repeatable=True) for key in names
    ]
    found = zip(names, flat[1::2], bodies, strict=True)
    return [meta for row in found if (meta := _meta(*row)) is not None]


def _upserted(spec: RepeatSpec, reply: int) -> bool:
    if not reply:
        rule = "left out for what recurs in a queue that a released engine shares: it would drop it"
        raise InvalidValue("attempts and backoff", spec.retry, rule)
    return True


def _meta(key: str, score: bytes, body: Any) -> RepeatableMeta | None:
    if isinstance(body, StoreUnavailable):
        raise body
    if isinstance(body, TamboError) or body[0] is None:
        return None
    try:
        spec = decode_spec(body[0])
    except RemoteProtocolError:
        return None
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
    )
