"""Reading whole lists, page by page, as calls nobody has made yet. Nothing here changes anything.

A list is read by its indices. It shrinks from its head while messages are dispatched or observed,
and all that is behind moves forward: a page that is asked for later then begins so much further.
"""

from __future__ import annotations

from typing import Any, Final

from tambomq.gomq import keys
from tambomq.gomq.ops import names as texts
from tambomq.store.call import Call

COUNT: Final = 1000
"""Elements of one page: more are no faster, and keep Redis from others."""


def queues(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and some keys with a main queue; the last page goes on at ``0``."""
    words = (cursor, "MATCH", f"{keys.QUEUE}*", "COUNT", COUNT, "TYPE", "list")
    return Call("SCAN", (), words, decode=_page_of_keys, repeatable=True)


def subscribed(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and some keys with subscribers; the last page goes on at ``0``."""
    words = (cursor, "COUNT", COUNT)
    return Call("SSCAN", (keys.SUBSCRIBED_KEYS,), words, decode=_page_of_keys, repeatable=True)


def consumers(key: str) -> Call[list[str]]:
    """Return who is subscribed to *key*."""
    return _members(keys.consumers(key))


def peers(consumer: str) -> Call[list[str]]:
    """Return the connected clients of *consumer*."""
    return _members(keys.peers(consumer))


def last_action(peer: str) -> Call[int | None]:
    """Return when *peer* was last heard of, in milliseconds; `None` if it was long ago."""
    return Call("GET", (keys.last_action(peer),), (), decode=_milliseconds, repeatable=True)


def length(name: str) -> Call[int]:
    """Return how many elements the list *name* has."""
    return Call("LLEN", (name,), (), decode=int, repeatable=True)


def page(name: str, first: int, count: int) -> Call[list[bytes]]:
    """Return at most *count* elements of the list *name*, from the index *first* on."""
    words = (first, first + count - 1)
    return Call("LRANGE", (name,), words, decode=list, repeatable=True)


def _members(name: str) -> Call[list[str]]:
    return Call("SMEMBERS", (name,), (), decode=_sorted, repeatable=True)


def _sorted(reply: list[bytes]) -> list[str]:
    return sorted(texts(reply))


def _page_of_keys(reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    # Somebody else may have put a name there that is no queue's.
    return cursor, [
        name.removeprefix(keys.QUEUE)
        for name in texts(found)
        if name.startswith(keys.QUEUE) and name != keys.QUEUE
    ]


def _milliseconds(reply: bytes | None) -> int | None:
    try:
        return int(float(reply) * 1000) if reply else None
    except (ValueError, OverflowError):
        return None
