"""Read-only calls that page through GOMQ queues.

Lists are paged by index. Dispatching and observing remove elements from a list's head, so a page
that is read later may skip as many elements.
"""

from __future__ import annotations

from typing import Any, Final

from tambomq.gomq import keys
from tambomq.gomq.ops.messages import names as texts
from tambomq.store.call import Call

COUNT: Final = 1000
"""Elements per page: larger pages are no faster, and block Redis for longer."""


def queues(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor (``0`` after the last page), and keys with a main queue."""
    words = (cursor, "MATCH", f"{keys.QUEUE}*", "COUNT", COUNT, "TYPE", "list")
    return Call("SCAN", (), words, decode=_page_of_keys, repeatable=True)


def subscribed(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor (``0`` after the last page), and keys with subscribers."""
    words = (cursor, "COUNT", COUNT)
    return Call("SSCAN", (keys.SUBSCRIBED_KEYS,), words, decode=_page_of_keys, repeatable=True)


def consumers(key: str) -> Call[list[str]]:
    """Return the consumers subscribed to *key*."""
    return _members(keys.consumers(key))


def peers(consumer: str) -> Call[list[str]]:
    """Return the connected clients of *consumer*."""
    return _members(keys.peers(consumer))


def last_action(peer: str) -> Call[int | None]:
    """Return the time of *peer*'s last action, in milliseconds; `None` if it has expired."""
    return Call("GET", (keys.last_action(peer),), (), decode=_milliseconds, repeatable=True)


def length(name: str) -> Call[int]:
    """Return how many elements the list *name* has."""
    return Call("LLEN", (name,), (), decode=int, repeatable=True)


def page(name: str, first: int, count: int) -> Call[list[bytes]]:
    """Return at most *count* elements of the list *name* from index *first*."""
    words = (first, first + count - 1)
    return Call("LRANGE", (name,), words, decode=list, repeatable=True)


def _members(name: str) -> Call[list[str]]:
    return Call("SMEMBERS", (name,), (), decode=_sorted, repeatable=True)


def _sorted(reply: list[bytes]) -> list[str]:
    return sorted(texts(reply))


def _page_of_keys(reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    # Ignore keys of other applications that only look like a queue.
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
