"""What is asked of a journal, as calls and plans nobody has made yet."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, TypeAlias

from tambomq.journal.keys import Keys, any_of, queue_of
from tambomq.journal.wire import Record, fields_of
from tambomq.store.call import Call, Plan, results

COUNT: Final = 1000
"""Entries of one page: more are no faster, and keep Redis from others."""

Entry: TypeAlias = tuple[bytes, list[bytes]]
"""An entry's id, and its fields: names and values by turns."""


def append(keys: Keys, records: Iterable[Record]) -> Plan[list[str]]:
    """Add *records* at the end, in order; return their entry ids.

    A record that no journal can hold is refused before anything of its page is written.
    """
    ids: list[str] = []
    left = iter(records)
    while page := [_add(keys, record) for record in islice(left, COUNT)]:
        ids += results((yield page))
    return ids


def read(keys: Keys, low: str = "-", high: str = "+", count: int = COUNT) -> Call[list[Entry]]:
    """Return entries from *low* to *high*, both included unless they begin with ``(``."""
    words = (low, high, "COUNT", count)
    return Call("XRANGE", (keys.journal,), words, decode=_entries, repeatable=True)


def first_id(keys: Keys) -> Call[str | None]:
    """Return the id of the first entry that is kept."""
    words = ("-", "+", "COUNT", 1)
    return Call("XRANGE", (keys.journal,), words, decode=_edge, repeatable=True)


def last_id(keys: Keys) -> Call[str | None]:
    """Return the id of the last entry that is kept."""
    words = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.journal,), words, decode=_edge, repeatable=True)


def length(keys: Keys) -> Call[int]:
    """Return how many entries are kept."""
    return Call("XLEN", (keys.journal,), (), decode=int, repeatable=True)


def trim(keys: Keys, min_id: str) -> Call[int]:
    """Drop all entries before *min_id*; return how many. That one and later ones stay."""
    return Call("XTRIM", (keys.journal,), ("MINID", "=", min_id), decode=int)


def queues(protocol: str, cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and some queues with a journal; the last page goes on at ``0``."""

    def named(reply: list[Any]) -> tuple[bytes, list[str]]:
        names = (queue_of(protocol, key.decode(errors="replace")) for key in reply[1])
        return reply[0], [name for name in names if name is not None]

    words = (cursor, "MATCH", any_of(protocol), "COUNT", COUNT, "TYPE", "stream")
    return Call("SCAN", (), words, decode=named, repeatable=True)


def _add(keys: Keys, record: Record) -> Call[str]:
    return Call("XADD", (keys.journal,), ("*", *fields_of(record)), decode=_text)


def _text(reply: bytes) -> str:
    return reply.decode()


def _entries(reply: list[Any]) -> list[Entry]:
    return [(id, fields) for id, fields in reply]


def _edge(reply: list[Any]) -> str | None:
    return reply[0][0].decode() if reply else None
