"""Calls and plans that read dead letters without their bodies, delete them, and restore them.

Deleted letters are kept aside for a while, so that a mistake can be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from tambomq.rsmq.keys import DEAD_SUFFIX, Keys
from tambomq.rsmq.ops.messages import reason_of
from tambomq.rsmq.ops.replies import id_arg, id_text, require_queue, score_to_ms, to_count
from tambomq.store.call import Arg, Call, Plan, load_script, results

PAGE: Final = 250
"""Dead letters per script: a script blocks the server."""

_DISCARD = load_script("tambomq.rsmq.bulk", "discard")
_RESTORE = load_script("tambomq.rsmq.bulk", "restore")


class DeadMessageHead(msgspec.Struct, frozen=True):
    """A dead letter without its body."""

    id: str
    died_ms: int
    """When it was buried; later if a consumer of the dead-letter queue has received it."""
    error: str
    rc: int


def letters(
    keys: Keys, queue: str, first: int = 0, count: int = PAGE
) -> Plan[list[DeadMessageHead]]:
    """Return dead letters of *queue*, the newest first, after the *first* ones."""
    messages, data = keys.of(queue + DEAD_SUFFIX)
    args = (first, first + min(count, PAGE) - 1, "REV", "WITHSCORES")
    found = results((yield (Call("ZRANGE", (messages,), args, list, repeatable=True),)))[0]
    if not found:
        return []
    fields: list[Arg] = []
    for id in found[::2]:
        fields += (id + b":why", id + b":rc")
    call = Call("HMGET", (data,), tuple(fields), list, repeatable=True)
    stored = results((yield (call,)))[0]
    rows = zip(found[::2], found[1::2], stored[::2], stored[1::2], strict=True)
    return [
        DeadMessageHead(id_text(id), score_to_ms(score), reason_of(why or b"")[0], to_count(rc))
        for id, score, why, rc in rows
    ]


def discard(keys: Keys, queue: str, id: str, letters: Sequence[str], keep_s: int) -> Plan[int]:
    """Delete *letters*, keeping them aside under *id*; return how many were deleted.

    One that a consumer of the dead-letter queue has in flight stays.
    """
    redis_keys = (*keys.all_of(queue + DEAD_SUFFIX), keys.discarded(queue, id))
    count = 0
    for first in range(0, len(letters), PAGE):
        args = (keep_s, *map(id_arg, letters[first : first + PAGE]))
        count += results((yield (Call(_DISCARD, redis_keys, args, int, repeatable=True),)))[0]
    return count


def restore(keys: Keys, queue: str, id: str) -> Plan[int]:
    """Move what was discarded under *id* back; return how many were still there.

    Raises `QueueNotFound` if the dead-letter queue was deleted.
    """
    dead = queue + DEAD_SUFFIX
    redis_keys = (*keys.of(dead), keys.discarded(queue, id))
    count: int = 0
    while True:
        call = Call(_RESTORE, redis_keys, (PAGE,), partial(_restored, dead), repeatable=True)
        some: int = results((yield (call,)))[0]
        count += some
        if some < PAGE:
            return count


def _restored(queue: str, reply: Any) -> int:
    return int(require_queue(queue, reply))
