"""Calls and plans of operators that change what is stored: a delayed job, the next fire of a spec.

Each is one script that compares with what was read: nothing that has moved meanwhile is changed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import Keys, check_job_id
from tambomq.chasqui.ops.jobs import TRIES, DelayedMember, find
from tambomq.chasqui.repeat import RepeatSpec
from tambomq.chasqui.schedule.cron import next_fire_ms
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, encode_envelope
from tambomq.chasqui.wire.repeat import decode_spec
from tambomq.store.call import Call, Plan, load_script, results

_EDIT_DELAYED = load_script("tambomq.chasqui.ops", "edit_delayed")
_SKIP_FIRE = load_script("tambomq.chasqui.ops", "skip_fire")


def edit_delayed(keys: Keys, job_id: str, payload: bytes, now_ms: int) -> Plan[bool]:
    """Give a delayed job another *payload*, MessagePack, and make it due now.

    False if there is no such delayed job. It keeps its id, name and runs.
    """
    check_job_id(job_id)
    for _ in range(TRIES):
        found = yield from find(keys, job_id)
        if not isinstance(found, DelayedMember):
            return False
        _, body = decode_member(found.member)
        envelope = msgspec.structs.replace(decode_envelope(body), payload=payload)
        new = found.member[: len(found.member) - len(body)] + encode_envelope(envelope)
        args = (found.member, new, now_ms)
        redis_keys = (keys.delayed, keys.index(job_id))
        if results((yield (Call(_EDIT_DELAYED, redis_keys, args, bool, repeatable=True),)))[0]:
            return True
    return False


def find_letter(keys: Keys, job_id: str) -> Plan[DeadLetter | None]:
    """Return the dead letter of a job; `None` if it is not dead."""
    found = yield from find(keys, check_job_id(job_id))
    return found if isinstance(found, DeadLetter) else None


def read_spec(keys: Keys, key: str) -> Plan[tuple[RepeatSpec, int] | None]:
    """Return a repeatable spec and its next fire; `None` if there is none with this key.

    Raises `RemoteProtocolError` if it cannot be decoded.
    """
    outcomes = yield (
        Call("ZSCORE", (keys.repeat,), (key,), _as_is, repeatable=True),
        Call("HGET", (keys.spec(key),), ("spec",), _as_is, repeatable=True),
    )
    score, body = results(outcomes)
    if score is None or body is None:
        return None
    return decode_spec(body), int(float(score))


def skip_fire(keys: Keys, key: str) -> Plan[tuple[int, int] | None]:
    """Leave out the next fire of a repeatable spec; return that fire and the one after.

    `None` if there is no such spec, no fire after the next one, or it fired meanwhile.
    """
    found = yield from read_spec(keys, key)
    if found is None:
        return None
    spec, was_ms = found
    next_ms = next_fire_ms(spec.pattern, was_ms, spec.start_after_ms)
    if next_ms is None or (spec.end_before_ms is not None and next_ms > spec.end_before_ms):
        return None
    call = Call(_SKIP_FIRE, (keys.repeat, keys.spec(key)), (key, was_ms, next_ms), bool)
    return (was_ms, next_ms) if results((yield (call,)))[0] else None


def _as_is(reply: Any) -> Any:
    return reply
