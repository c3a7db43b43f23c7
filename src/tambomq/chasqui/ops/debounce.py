"""Plans that limit how often a job of one id is added: debounced or throttled.

Debounced, the job runs once its id has not been added for a while, with the data of the last add.
Throttled, the first add counts, and others of its id are refused for a while.
"""

from __future__ import annotations

import math
from functools import partial

from tambomq.chasqui.job import U32
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import convert as convert_ops
from tambomq.chasqui.ops.add import GRACE_S, Draft, DuplicateLength, Policy, add_once
from tambomq.chasqui.ops.journal import recorded
from tambomq.chasqui.wire.envelope import to_store
from tambomq.errors import ForeignLeader, InvalidValue
from tambomq.ids import ulid
from tambomq.store.call import Call, Plan, load_script, results

_DEBOUNCE = load_script("tambomq.chasqui.ops", "debounce")


def debounce(keys: Keys, policy: Policy, job: Draft, delay_ms: int) -> Plan[bool]:
    """Delay *job*, from now, in place of the one of its id that is still delayed.

    False if there was one. Raises `ForeignLeader`, and `JournalFull`.
    """
    added, is_mixed = results((yield (_debounce(keys, policy, job, delay_ms),)))[0]
    if is_mixed:
        yield from convert_ops.convert(keys)
    return bool(added)


def throttle(keys: Keys, policy: Policy, job: Draft, every_ms: int) -> Plan[bool]:
    """Add *job*, unless one of its id was added here within *every_ms*: false.

    Raises `QueueFull` and `JournalFull`; then nothing counts as added.
    """
    call = add_once(keys, policy, job, keys.throttle(job.id), every_ms)
    return not isinstance(results((yield (call,)))[0], DuplicateLength)


def whole_ms(what: str, seconds: float) -> int:
    """Return *seconds* in milliseconds, at least one; raise `InvalidValue` if it is no time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidValue(what, seconds, "a number of seconds")
    if not 0 < seconds <= U32:
        raise InvalidValue(what, seconds, f"more than 0 and at most {U32}")
    return math.ceil(seconds * 1000)


def _debounce(keys: Keys, policy: Policy, job: Draft, delay_ms: int) -> Call[tuple[bool, bool]]:
    dialect, member = to_store(job.name, job.body, policy.dialect)
    ttl_s = min(math.ceil(delay_ms / 1000), U32) + GRACE_S
    args = (
        dialect, policy.events_cap, job.created_at_ms, job.id, job.name, delay_ms, member, ttl_s,
        ulid(0),
    )  # fmt: skip
    redis_keys = (
        keys.delayed, keys.events, keys.marker(job.id), keys.index(job.id), keys.requests,
        keys.stream, *keys.signs,
    )  # fmt: skip
    call = Call(_DEBOUNCE, redis_keys, args, partial(_debounced, keys.queue), repeatable=True)
    size = len(job.payload) if policy.journal else 0
    return recorded(keys, policy.journal, call, entries=1, size=size)


def _debounced(queue: str, reply: int | bytes) -> tuple[bool, bool]:
    if isinstance(reply, bytes):
        raise ForeignLeader(queue, reply.decode("utf-8", "replace"))
    return reply % 2 == 1, reply > 1
