"""Operations on the bounds of RSMQ queues, as calls and plans that a store runs.

Bounds are kept in a key of our own. The scripts of sends and receives read them there, so they hold
for all clients of this library at once, and cost clients of other queues one read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from tambomq.errors import InvalidValue, NothingToSet, QueueCorrupt
from tambomq.journal.hooks import recorded
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.keys import DEAD_SUFFIX, Keys, check_dead_queue
from tambomq.rsmq.model import OVERFLOWS, QueueBounds, check_bound, check_ttl
from tambomq.rsmq.ops.replies import require_queue
from tambomq.store.call import Call, Plan, load_script, results

SWEEP_CHUNK: Final = 500
"""Expired messages that one script moves at most, and fewer of large ones: about 2 ms."""
_PAGE: Final = 1000

_SET_BOUNDS = load_script("tambomq.rsmq.ops", "set_bounds")
_WEIGH = load_script("tambomq.rsmq.ops", "weigh")
_SWEEP = load_script("tambomq.rsmq.ops", "sweep")


def set_bounds(
    keys: Keys,
    queue: str,
    *,
    max_messages: int | None,
    max_bytes: int | None,
    message_ttl_s: float | None,
    overflow: str | None,
    dead: str | None,
) -> Plan[QueueBounds]:
    """Change some bounds of a queue and return all; -1 removes one.

    Counts the bytes that are in the queue already, one page per call.
    """
    changes = _changes(max_messages, max_bytes, message_ttl_s, overflow)
    if not changes and dead is None:
        raise NothingToSet("max_messages", "max_bytes", "message_ttl_s", "overflow", "dead")
    bounds, sizes = keys.bounds(queue), keys.sizes(queue)
    current = Call("HGET", (bounds,), ("dead",), _text, repeatable=True)
    known = results((yield (current,)))[0]
    dead = check_dead_queue(dead or known or queue + DEAD_SUFFIX, of=queue)
    dead_messages, dead_data = keys.of(dead)
    changes |= {
        "dead": dead,
        "queues": keys.queues,
        "dead_messages": dead_messages,
        "dead_data": dead_data,
    }
    data = keys.data(queue)
    args = tuple(each for change in changes.items() for each in change)
    decode = partial(require_queue, queue)
    results((yield (Call(_SET_BOUNDS, (data, bounds, sizes), args, decode),)))
    if changes.get("max_bytes"):
        yield from _weigh(keys, queue)
    found: QueueBounds = results((yield (read(keys, queue),)))[0]
    return found


def _changes(
    max_messages: int | None,
    max_bytes: int | None,
    message_ttl_s: float | None,
    overflow: str | None,
) -> dict[str, str | int]:
    """Return the fields to set, checked; an empty value deletes one."""
    changes: dict[str, str | int] = {}
    for name, value in (("max_messages", max_messages), ("max_bytes", max_bytes)):
        if value is not None:
            changes[name] = "" if check_bound(name, value) < 0 else value
    if message_ttl_s is not None:
        ttl_s = check_ttl(message_ttl_s)
        changes["ttl_ms"] = "" if ttl_s < 0 else max(1, round(ttl_s * 1000))
    if overflow is not None:
        if overflow not in OVERFLOWS:
            raise InvalidValue("overflow", overflow, f"one of {', '.join(OVERFLOWS)}")
        changes["overflow"] = overflow
    return changes


def _weigh(keys: Keys, queue: str) -> Plan[None]:
    """Count the sizes of the messages that are there, one page per call."""
    weighed, cursor = (*keys.of(queue), keys.bounds(queue), keys.sizes(queue)), b"0"
    while True:
        page = Call(_WEIGH, weighed, (cursor, _PAGE), bytes, repeatable=True)
        cursor = results((yield (page,)))[0]
        if cursor == b"0":
            return


def read(keys: Keys, queue: str) -> Call[QueueBounds]:
    """Return the bounds of a queue and their counters; those of no queue are without limits."""
    decode = partial(decode_bounds, queue)
    return Call("HGETALL", (keys.bounds(queue),), (), decode, repeatable=True)


def sweep(keys: Keys, queue: str, *, journal: JournalPolicy | None = None) -> Plan[int]:
    """Dead-letter all messages that have expired; return how many."""

    def decode(reply: Any) -> tuple[int, bool]:
        expired, has_more = require_queue(queue, reply)
        return expired, bool(has_more)

    call = Call(_SWEEP, keys.to_receive(queue), (SWEEP_CHUNK,), decode, repeatable=True)
    call, total = recorded(journal, queue, call), 0
    while True:
        expired: int
        expired, has_more = results((yield (call,)))[0]
        total += expired
        if not has_more:
            return total


def decode_bounds(queue: str, reply: Sequence[bytes] | Mapping[bytes, bytes]) -> QueueBounds:
    """Return the bounds that a hash holds; raise `QueueCorrupt` if one is not a number."""
    if isinstance(reply, Mapping):
        found = dict(reply)
    else:
        fields = iter(reply)
        found = dict(zip(fields, fields, strict=True))
    if not found:
        return QueueBounds()

    def number(field: bytes, missing: int) -> int:
        return int(found.get(field, missing))

    try:
        ttl_ms = number(b"ttl_ms", -1)
        return QueueBounds(
            max_messages=number(b"max_messages", -1),
            max_bytes=number(b"max_bytes", -1),
            message_ttl_s=ttl_ms / 1000 if ttl_ms > 0 else -1,
            overflow=found.get(b"overflow", OVERFLOWS[0].encode()).decode(),
            dead=found.get(b"dead", b"").decode(),
            bytes=number(b"bytes", 0),
            refused=number(b"refused", 0),
            overflowed=number(b"overflowed", 0),
            expired=number(b"expired", 0),
        )
    except ValueError as error:
        raise QueueCorrupt(queue, f"its bounds: {error}") from error


def _text(value: Any) -> str:
    return value.decode() if value else ""
