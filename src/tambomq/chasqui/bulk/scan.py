"""Read-only calls that page through ChasquiMQ queues.

Streams are paged by id and sorted sets by score, since concurrent changes move neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import floor
from typing import Any, TypeAlias

from tambomq.chasqui.keys import ANY_QUEUE, Keys, trace_of
from tambomq.store.call import Call, load_script

COUNT = 1000
"""Rows per page: larger pages are no faster, and block Redis for longer."""

Row: TypeAlias = list[Any]
"""A stream entry: its id, and fields and values alternating (`None` if it was deleted)."""
Pending: TypeAlias = list[Any]
"""A pending entry: id, consumer, idle milliseconds, deliveries."""

_AROUND = load_script("tambomq.chasqui.bulk", "around")
_FIND = load_script("tambomq.chasqui.bulk", "find")
# Scores are floats, which represent integers exactly only up to here.
_FOREVER = 2**53


def names(cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor (``0`` after the last page), and keys that reveal queues."""
    words = (cursor, "MATCH", ANY_QUEUE, "COUNT", COUNT)
    return Call("SCAN", (), words, _keys, repeatable=True)


def exists(*keys: str) -> Call[bool]:
    """Whether any of *keys* exists."""
    return Call("EXISTS", keys, (), bool, repeatable=True)


# --- streams ---


def length(stream: str) -> Call[int]:
    """Return how many entries a stream has."""
    return Call("XLEN", (stream,), (), int, repeatable=True)


def first(stream: str, low: str = "-", high: str = "+") -> Call[str | None]:
    """Return the first id from *low* to *high*; `None` if there is none."""
    return Call("XRANGE", (stream,), (low, high, "COUNT", 1), _id, repeatable=True)


def last(stream: str, low: str = "-", high: str = "+") -> Call[str | None]:
    """Return the last id from *low* to *high*; `None` if there is none."""
    return Call("XREVRANGE", (stream,), (high, low, "COUNT", 1), _id, repeatable=True)


def around(stream: str, points: Sequence[int]) -> Call[list[tuple[bytes | None, bytes | None]]]:
    """Return, for each of these milliseconds, the last id before it and the first from it on."""
    return Call(_AROUND, (stream,), tuple(points), _pairs, repeatable=True)


def page(stream: str, low: str, high: str, count: int = COUNT) -> Call[list[Row]]:
    """Return entries from *low* to *high*, the oldest first."""
    return Call("XRANGE", (stream,), (low, high, "COUNT", count), list, repeatable=True)


def entry(stream: str, id: bytes) -> Call[Row]:
    """Return one entry; with `None` for its fields if it was deleted."""
    decode = partial(_entry, id)
    return Call("XRANGE", (stream,), (id, id, "COUNT", 1), decode, repeatable=True)


# --- pending entries of a group ---


def pending_count(keys: Keys, group: str) -> Call[int]:
    """Return how many entries are pending; `StoreError` of kind NOGROUP if there is no group."""
    return Call("XPENDING", (keys.stream,), (group,), _total, repeatable=True)


def pending(keys: Keys, group: str, low: str, high: str) -> Call[list[Pending]]:
    """Return pending entries from *low* to *high*, the oldest first."""
    return Call("XPENDING", (keys.stream,), (group, low, high, COUNT), list, repeatable=True)


# --- sorted sets ---


def count(zset: str, low: str, high: str) -> Call[int]:
    """Return how many members have a score from *low* to *high*."""
    return Call("ZCOUNT", (zset,), (low, high), int, repeatable=True)


def score_at(zset: str, low: str, high: str, index: int) -> Call[int | None]:
    """Return the score of member *index* of those from *low* to *high*; `None` beyond the last."""
    words = (low, high, "BYSCORE", "LIMIT", index, 1, "WITHSCORES")
    return Call("ZRANGE", (zset,), words, _score, repeatable=True)


def members(
    zset: str, low: str, high: str, skip: int, count: int = COUNT
) -> Call[tuple[list[bytes], list[bytes]]]:
    """Return members and scores from *low* to *high*, skipping the first *skip*."""
    words = (low, high, "BYSCORE", "LIMIT", skip, count, "WITHSCORES")
    return Call("ZRANGE", (zset,), words, _members, repeatable=True)


def moment(score: bytes) -> int:
    """Return a score as milliseconds, clamped to ±2**53."""
    return floor(max(-_FOREVER, min(float(score), _FOREVER)))


def spec(keys: Keys, key: str) -> Call[list[bytes | None]]:
    """Return the body of a repeatable spec and how often it has fired."""
    return Call("HMGET", (keys.spec(key),), ("spec", "fired"), list, repeatable=True)


# --- results ---


def results_page(keys: Keys, cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor, and ids of jobs that have a result.

    Scans all keys of the server, whichever queue they belong to.
    """
    decode = partial(_result_ids, keys.result(""))
    words = (cursor, keys.pattern, "string")
    return Call(_FIND, (keys.stream,), words, decode, repeatable=True)


def result(keys: Keys, id: str) -> Call[bytes | None]:
    """Return the stored return value of a handler; `None` if there is none."""
    return Call("GET", (keys.result(id),), (), _as_is, repeatable=True)


def result_expiry(keys: Keys, id: str) -> Call[int | None]:
    """Return in how many milliseconds a result expires; `None` if never, or if it has."""
    return Call("PTTL", (keys.result(id),), (), _expiry, repeatable=True)


def now() -> Call[int]:
    """Return the server's time in milliseconds."""
    return Call("TIME", (), (), _milliseconds, repeatable=True)


def _as_is(reply: Any) -> Any:
    return reply


def _keys(reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    return cursor, [key for key in _texts(found) if trace_of(key) is not None]


def _id(rows: list[Row]) -> str | None:
    return rows[0][0].decode() if rows else None


def _entry(id: bytes, rows: list[Row]) -> Row:
    return rows[0] if rows else [id, None]


def _pairs(ids: list[bytes]) -> list[tuple[bytes | None, bytes | None]]:
    known = [id or None for id in ids]
    return list(zip(known[::2], known[1::2], strict=True))


def _total(reply: list[Any]) -> int:
    return int(reply[0])


def _score(reply: list[bytes]) -> int | None:
    return moment(reply[1]) if reply else None


def _members(reply: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    return reply[::2], reply[1::2]


def _result_ids(prefix: str, reply: list[Any]) -> tuple[bytes, list[str]]:
    cursor, found = reply
    return cursor, [key[len(prefix) :] for key in _texts(found) if key.startswith(prefix)]


def _texts(keys: list[bytes]) -> Iterator[str]:
    """Yield the keys that are UTF-8; others belong to no queue."""
    for key in keys:
        with suppress(UnicodeDecodeError):
            yield key.decode()


def _expiry(ttl_ms: int) -> int | None:
    return ttl_ms if ttl_ms >= 0 else None


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000
