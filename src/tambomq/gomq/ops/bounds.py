"""The Redis operations for bounds of main queues: their memory, and messages that have expired."""

from __future__ import annotations

from typing import Final

from tambomq.gomq import keys
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds
from tambomq.store.call import Call, Plan, load_script, results

EXPIRE_CHUNK: Final = 500
"""Messages that one script moves at most, and fewer of large ones."""

_EXPIRE = load_script("tambomq.gomq.ops", "expire", journal=True)


def backlog_bytes(key: str) -> Call[int]:
    """Return the memory that the main queue takes: exact for lists.

    Redis looks at each node of the list, which takes a millisecond or two for 100 MB.
    """
    return Call(
        "MEMORY USAGE", (keys.queue(key),), ("SAMPLES", 0), lambda size: size or 0, repeatable=True
    )


def expire(
    key: str, dead: str, ttl_s: float, journal_bounds: JournalBounds = DEFAULT_BOUNDS
) -> Plan[int]:
    """Move the messages of a main queue that are older than *ttl_s* to that of *dead*.

    Returns how many. Their ids tell when they were published. If *key* has a journal, it records
    that they have left, within its bounds.
    """
    queues, found = (keys.queue(key), keys.queue(dead)), JournalKeys("gomq", key)
    hook = (found.journal, found.state, journal_bounds.max_entries, journal_bounds.max_bytes)
    call = Call(_EXPIRE, queues, (ttl_s, EXPIRE_CHUNK, *hook), _expired, repeatable=True)
    total = 0
    while True:
        moved: int
        moved, has_more = results((yield (call,)))[0]
        total += moved
        if not has_more:
            return total


def _expired(reply: list[int]) -> tuple[int, bool]:
    moved, has_more = reply
    return moved, bool(has_more)
