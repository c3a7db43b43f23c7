"""Read-only calls that page through RSMQ queues.

Pages are addressed by score, not by rank: a message that is received during the scan changes its
score, which shifts the ranks of others. Scores stay the text that Redis returned, since a rounded
number would no longer match the member.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from tambomq.rsmq.keys import Keys
from tambomq.store.call import Call

COUNT = 1000
"""Messages per page: larger pages are no faster, and block Redis for longer."""

# Encoded as RESP here, a page at once: encoding each argument separately takes many times as long.
_FIELDS = b"$%d\r\n%%b\r\n", b"$%d\r\n%%b:rc\r\n", b"$%d\r\n%%b:fr\r\n"
_LENGTHS = 0, len(":rc"), len(":fr")


def names(keys: Keys, cursor: bytes) -> Call[tuple[bytes, list[bytes]]]:
    """Return the next cursor (``0`` after the last page), and names of queues."""
    words = (cursor, "COUNT", COUNT)
    return Call("SSCAN", (keys.queues,), words, decode=tuple, repeatable=True)


def exists(keys: Keys, queue: str) -> Call[bool]:
    """Whether the queue exists."""
    return Call("HEXISTS", (keys.of(queue)[1],), ("vt",), decode=bool, repeatable=True)


def now() -> Call[int]:
    """Return the server's time in milliseconds."""
    return Call(
        "TIME", (), (), decode=lambda t: int(t[0]) * 1000 + int(t[1]) // 1000, repeatable=True
    )


def count(keys: Keys, queue: str, low: str, high: str) -> Call[int]:
    """Return how many messages have a score from *low* to *high*."""
    return Call("ZCOUNT", (keys.of(queue)[0],), (low, high), decode=int, repeatable=True)


def score_at(keys: Keys, queue: str, low: str, high: str, index: int) -> Call[bytes | None]:
    """Return the score of message *index* of those from *low* to *high*; `None` beyond the last."""
    words = (low, high, "BYSCORE", "LIMIT", index, 1, "WITHSCORES")
    return Call("ZRANGE", (keys.of(queue)[0],), words, decode=_score, repeatable=True)


def page(
    keys: Keys, queue: str, low: str, high: str, skip: int
) -> Call[tuple[list[bytes], list[bytes]]]:
    """Return ids and scores from *low* to *high*, skipping the first *skip*."""
    words = (low, high, "BYSCORE", "LIMIT", skip, COUNT, "WITHSCORES")
    return Call("ZRANGE", (keys.of(queue)[0],), words, decode=_page, repeatable=True)


def contents(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Return body, receive count and time of first receive of each, in one flat list."""
    return _fields_of(keys, queue, ids, 3)


def counted_bodies(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Return body and receive count of each, in one flat list."""
    return _fields_of(keys, queue, ids, 2)


def _fields_of(
    keys: Keys, queue: str, ids: Sequence[bytes], count: int
) -> Call[list[bytes | None]]:
    """Return the first *count* of the fields of each."""
    data = keys.of(queue)[1]
    key = data.encode()
    head = b"*%d\r\n$5\r\nHMGET\r\n$%d\r\n%b\r\n" % (2 + count * len(ids), len(key), key)
    lengths = [*map(len, ids)]
    if len(set(lengths)) == 1:
        templates = _template(lengths[0], count) * len(ids)
    else:
        templates = b"".join(_template(length, count) for length in lengths)
    fields = templates % tuple(chain.from_iterable(zip(*[ids] * count, strict=True)))
    return Call("HMGET", (data,), (), decode=list, repeatable=True, packed=head + fields)


def present(keys: Keys, queue: str, ids: Sequence[bytes]) -> Call[list[bool]]:
    """Whether each message still exists."""
    return Call("ZMSCORE", (keys.of(queue)[0],), tuple(ids), decode=_present, repeatable=True)


def _template(length: int, count: int) -> bytes:
    """Return the template of *count* fields of a message whose id has *length* bytes."""
    pairs = zip(_FIELDS[:count], _LENGTHS, strict=False)
    return b"".join(field % (length + more) for field, more in pairs)


def _score(reply: list[bytes]) -> bytes | None:
    return reply[1] if reply else None


def _page(reply: list[Any]) -> tuple[list[bytes], list[bytes]]:
    return reply[::2], reply[1::2]


def _present(reply: list[bytes | None]) -> list[bool]:
    return [score is not None for score in reply]
