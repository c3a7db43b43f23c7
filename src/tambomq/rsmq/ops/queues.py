"""Operations on whole RSMQ queues, as calls and plans that a store runs.

Names and numbers are checked here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from tambomq.errors import NothingToSet, QueueCorrupt, QueueExists, QueueNotFound
from tambomq.ids import unique
from tambomq.rsmq.keys import ATTRIBUTES, COUNTERS, Keys, check_queue
from tambomq.rsmq.model import (
    QueueAttributes,
    QueueStats,
    check_maxsize,
    check_whole_seconds,
)
from tambomq.rsmq.ops.bounds import decode_bounds
from tambomq.rsmq.ops.replies import require_queue, score_to_ms
from tambomq.store.call import Call, Plan, load_script, results

_CREATE = load_script("tambomq.rsmq.ops", "create")
_DROP = load_script("tambomq.rsmq.ops", "drop")
_PURGE = load_script("tambomq.rsmq.ops", "purge")
_ATTRIBUTES = load_script("tambomq.rsmq.ops", "attributes")
_SET_ATTRIBUTES = load_script("tambomq.rsmq.ops", "set_attributes")
_CENSUS_MESSAGES = load_script("tambomq.rsmq.ops", "census_messages")
_CENSUS_FIELDS = load_script("tambomq.rsmq.ops", "census_fields")
_REWIND = load_script("tambomq.rsmq.ops", "rewind")

CHANGE_TTL_S: Final = 3600
"""How long the token of a change is kept; a call is repeated for less time than that."""
# A page of the census blocks the server for about 2 ms.
_PAGE = 1000


def create(keys: Keys, queue: str, *, vt: int, delay: int, maxsize: int) -> Call[None]:
    """Create a queue; raise `QueueExists` if there is one."""

    def decode(created: int) -> None:
        if not created:
            raise QueueExists(queue)

    args = (
        check_queue(queue),
        check_whole_seconds("vt", vt),
        check_whole_seconds("delay", delay),
        check_maxsize(maxsize),
    )
    return Call(_CREATE, (keys.queues, keys.data(queue)), args, decode)


def drop(keys: Keys, queue: str) -> Call[None]:
    """Delete a queue and its messages; raise `QueueNotFound` if there is none."""

    def decode(dropped: int) -> None:
        if not dropped:
            raise QueueNotFound(queue)

    redis_keys = (keys.queues, *keys.to_receive(queue), keys.sizes(queue))
    return Call(_DROP, redis_keys, (queue,), decode)


def purge(keys: Keys, queue: str) -> Call[int]:
    """Delete all messages of a queue, keep the queue; return how many there were."""
    kept = (*ATTRIBUTES, *COUNTERS)
    return Call(_PURGE, keys.all_of(queue), kept, partial(require_queue, queue))


def list_queues(keys: Keys) -> Call[list[str]]:
    """Return the names of all queues, sorted."""

    def decode(found: Iterable[bytes]) -> list[str]:
        # Another client's queue name may not be UTF-8: show it escaped instead of failing.
        return sorted(name.decode("utf-8", "backslashreplace") for name in found)

    return Call("SMEMBERS", (keys.queues,), (), decode, repeatable=True)


def attributes(keys: Keys, queue: str) -> Call[QueueAttributes]:
    """Return a queue's settings, counters and sizes."""
    return Call(_ATTRIBUTES, keys.to_send(queue), (), partial(_attributes, queue), repeatable=True)


def _attributes(queue: str, reply: Any) -> QueueAttributes:
    all_found = require_queue(queue, reply)
    found, bounds = all_found[:9], all_found[10:]
    try:
        # Other clients may write 30 as 30.0; a missing number counts as 0.
        vt, delay, *rest = (float(value or 0) for value in found)
        recv, sent, created, modified, msgs, hidden = (int(value) for value in rest[1:])
        maxsize = int(rest[0])
    except (ValueError, OverflowError) as error:
        raise QueueCorrupt(queue, str(error)) from error
    shown = decode_bounds(queue, bounds[0] if bounds else ())
    return QueueAttributes(
        vt, delay, maxsize, recv, sent, created, modified, msgs, hidden, bounds=shown
    )


def set_attributes(
    keys: Keys, queue: str, *, vt: int | None, delay: int | None, maxsize: int | None
) -> Plan[QueueAttributes]:
    """Change some settings and return all, in one round trip."""
    args: list[str | int] = []
    if vt is not None:
        args += ("vt", check_whole_seconds("vt", vt))
    if delay is not None:
        args += ("delay", check_whole_seconds("delay", delay))
    if maxsize is not None:
        args += ("maxsize", check_maxsize(maxsize))
    if not args:
        raise NothingToSet
    redis_keys = (keys.of(queue)[1], keys.change(queue, unique()))
    decode = partial(require_queue, queue)
    change = Call(_SET_ATTRIBUTES, redis_keys, (CHANGE_TTL_S, *args), decode, repeatable=True)
    return _last_of((change, attributes(keys, queue)))


def _last_of(calls: Sequence[Call[Any]]) -> Plan[Any]:
    outcomes = yield calls
    return results(outcomes)[-1]


def stats(keys: Keys, queue: str) -> Plan[QueueStats]:
    """Count a queue message by message, one page per call, so that other clients are served.

    The counts are exact only while the queue is not in use.
    """
    queue_keys = keys.of(queue)
    oldest = Call("ZRANGE", queue_keys[:1], (0, 0, "WITHSCORES"), list, repeatable=True)
    clock = Call("TIME", (), (), _milliseconds, repeatable=True)
    found, first, now = results((yield (attributes(keys, queue), oldest, clock)))
    visible, in_flight, delayed, without_body, size = yield from _census(
        _CENSUS_MESSAGES, queue_keys
    )
    bodies, strays = yield from _census(_CENSUS_FIELDS, queue_keys)
    return QueueStats(
        queue=queue,
        visible=visible,
        in_flight=in_flight,
        delayed=delayed,
        oldest_visible_ms=max(0, now - score_to_ms(first[1])) if first else 0,
        body_bytes=size,
        members_without_body=without_body,
        bodies_without_member=bodies,
        stray_fields=strays,
        attributes=found,
    )


def _milliseconds(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _census(script: Any, queue_keys: tuple[str, str]) -> Plan[list[int]]:
    cursor, sums = b"0", [0] * 5
    while True:
        page = Call(script, queue_keys, (cursor, _PAGE), list, repeatable=True)
        ((cursor, *counts),) = results((yield (page,)))
        sums = [total + count for total, count in zip(sums, counts, strict=False)]
        if cursor == b"0":
            return sums


def rewind(keys: Keys, queue: str) -> Plan[int]:
    """Re-hide messages whose visibility timeout was set before the server's clock went back.

    Returns how many. Harmless at any time: only messages that were hidden in the future, by
    the server's present clock, are changed.
    """
    messages, _, receipts = keys.all_of(queue)
    cursor, total = b"0", 0
    while True:
        page = Call(_REWIND, (messages, receipts), (cursor,), list, repeatable=True)
        ((cursor, count),) = results((yield (page,)))
        total += int(count)
        if cursor == b"0":
            return total
