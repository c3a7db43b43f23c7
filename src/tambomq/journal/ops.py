"""Calls and plans that append to, read, commit and trim a journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec

from tambomq.journal import keys as fields
from tambomq.journal.keys import JournalKeys, any_of, check_entry_id, check_reader, queue_of
from tambomq.journal.policy import JournalBounds
from tambomq.journal.wire import JournalRecord, by_name, fields_of, number
from tambomq.store.call import Call, Plan, load_script, results

COUNT: Final = 1000
"""Entries of one page. Larger pages are no faster, and block Redis for other clients."""

_COMMIT = load_script("tambomq.journal", "commit")
_FORGET = load_script("tambomq.journal", "forget")
_STATE = load_script("tambomq.journal", "state")
_APPEND = load_script("tambomq.journal", "append")

Entry: TypeAlias = tuple[bytes, list[bytes]]
"""An entry's id, and its fields: names and values alternate."""


class ReaderState(msgspec.Struct, frozen=True):
    """The position of one reader of a journal."""

    name: str
    committed: str
    """The last entry that it has committed."""
    lag_bytes: int
    """Size of the entries after that one, as the bounds count it."""
    lag_ms: int
    """Time between that entry and the last one."""


class State(msgspec.Struct, frozen=True):
    """The size of a journal, its counters and the positions of its readers."""

    entries: int
    bytes: int
    """As the bounds count them, without entries that were appended without bounds."""
    first: str
    """The id of the first entry; empty without entries."""
    last: str
    """The last id that was ever assigned."""
    refused: int
    """Messages that were not stored because the journal was full."""
    dropped: int
    """Events that were not recorded because it was full or unreachable."""
    readers: tuple[ReaderState, ...]


def append(keys: JournalKeys, records: Iterable[JournalRecord]) -> Plan[list[str]]:
    """Add *records* at the end, in order; return their entry ids.

    An invalid record is refused before anything of its page is written.
    """
    ids: list[str] = []
    left = iter(records)
    while page := [_add(keys, record) for record in islice(left, COUNT)]:
        ids += results((yield page))
    return ids


def append_bounded(
    keys: JournalKeys, bounds: JournalBounds, sent: Iterable[tuple[int, bytes]], missed: int = 0
) -> Call[int]:
    """Record *sent* messages, as pairs of receivers and body, until the journal is full.

    Return how many were recorded. The others, and *missed* more, are counted as dropped.
    """
    flat = (word for pair in sent for word in pair)
    args = (bounds.max_entries, bounds.max_bytes, missed, *flat)
    return Call(_APPEND, (keys.journal, keys.state), args, decode=int)


MORE_TRIMMED: Final = 1000
"""If one `commit` has trimmed so many entries, the same once more may trim others."""


def commit_and_trim(commits: Sequence[Call[int]]) -> Plan[int]:
    """Repeat *commits* until all that can be trimmed is trimmed; return how many entries were."""
    total = 0
    while commits:
        trimmed: list[int] = results((yield commits))
        total += sum(trimmed)
        pairs = zip(commits, trimmed, strict=True)
        commits = [commit for commit, count in pairs if count >= MORE_TRIMMED]
    return total


def commit(keys: JournalKeys, reader: str, id: str) -> Call[int]:
    """Commit that *reader* has processed all entries up to *id*; return how many were trimmed.

    Entries that all readers have committed are trimmed, except the last of them, but not all at
    once: see `commit_and_trim`. Committing ``0-0`` registers a reader before it has read anything;
    an id before its last commit changes nothing.
    """
    args = (check_reader(reader), check_entry_id(id))
    return Call(_COMMIT, (keys.journal, keys.state), args, decode=int, repeatable=True)


def forget(keys: JournalKeys, reader: str) -> Call[bool]:
    """Delete *reader*, so that trimming does not wait for it; false if it was not known."""
    args = (check_reader(reader),)
    return Call(_FORGET, (keys.journal, keys.state), args, decode=bool, repeatable=True)


def state(keys: JournalKeys) -> Call[State | None]:
    """Return the state of a journal; `None` if there is none."""
    return Call(_STATE, (keys.journal, keys.state), (), decode=_state, repeatable=True)


def read(
    keys: JournalKeys, low: str = "-", high: str = "+", count: int = COUNT
) -> Call[list[Entry]]:
    """Return entries from *low* to *high*, both included unless they begin with ``(``."""
    words = (low, high, "COUNT", count)
    return Call("XRANGE", (keys.journal,), words, decode=_entries, repeatable=True)


def first_id(keys: JournalKeys) -> Call[str | None]:
    """Return the id of the first entry; `None` without entries."""
    words = ("-", "+", "COUNT", 1)
    return Call("XRANGE", (keys.journal,), words, decode=_edge, repeatable=True)


def last_id(keys: JournalKeys) -> Call[str | None]:
    """Return the id of the last entry; `None` without entries."""
    words = ("+", "-", "COUNT", 1)
    return Call("XREVRANGE", (keys.journal,), words, decode=_edge, repeatable=True)


def length(keys: JournalKeys) -> Call[int]:
    """Return the number of entries."""
    return Call("XLEN", (keys.journal,), (), decode=int, repeatable=True)


def trim(keys: JournalKeys, min_id: str) -> Call[int]:
    """Drop all entries before *min_id*; return how many. That one and later ones stay."""
    return Call("XTRIM", (keys.journal,), ("MINID", "=", min_id), decode=int)


def queues(protocol: str, cursor: bytes) -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor (``0`` at the end), and some queues with a journal."""

    def named(reply: list[Any]) -> tuple[bytes, list[str]]:
        names = (queue_of(protocol, key.decode(errors="replace")) for key in reply[1])
        return reply[0], [name for name in names if name is not None]

    words = (cursor, "MATCH", any_of(protocol), "COUNT", COUNT, "TYPE", "stream")
    return Call("SCAN", (), words, decode=named, repeatable=True)


def journals(cursor: bytes) -> Call[tuple[bytes, list[JournalKeys]]]:
    """Return the next cursor (``0`` at the end), and some journals of any protocol."""

    def named(reply: list[Any]) -> tuple[bytes, list[JournalKeys]]:
        owners = (fields.owner_of(key.decode(errors="replace")) for key in reply[1])
        return reply[0], [JournalKeys(*owner) for owner in owners if owner[0] in fields.PROTOCOLS]

    words = (cursor, "MATCH", fields.ANY, "COUNT", COUNT, "TYPE", "stream")
    return Call("SCAN", (), words, decode=named, repeatable=True)


def _add(keys: JournalKeys, record: JournalRecord) -> Call[str]:
    return Call("XADD", (keys.journal,), ("*", *fields_of(record)), decode=_text)


def _text(reply: bytes) -> str:
    return reply.decode(errors="replace")


def _entries(reply: list[Any]) -> list[Entry]:
    return [(id, fields) for id, fields in reply]


def _edge(reply: list[Any]) -> str | None:
    return reply[0][0].decode() if reply else None


def _state(reply: list[Any]) -> State | None:
    entries, first, last, flat = reply
    if not last and not flat:
        return None
    found, end = by_name(flat), last.decode() or "0-0"

    def count(name: bytes) -> int:
        return number(found.get(name)) or 0

    readers = tuple(
        ReaderState(
            name=_text(field.removeprefix(fields.COMMITTED)),
            committed=_text(id),
            lag_bytes=max(0, count(fields.BYTES) - count(_read_field(field))),
            lag_ms=max(0, _ms(end) - _ms(_text(id))),
        )
        for field, id in sorted(found.items())
        if field.startswith(fields.COMMITTED)
    )
    return State(
        entries=entries,
        bytes=max(0, count(fields.BYTES) - count(fields.TRIMMED)) if entries else 0,
        first=_text(first),
        last=end,
        refused=count(fields.REFUSED),
        dropped=count(fields.DROPPED),
        readers=readers,
    )


def _read_field(committed: bytes) -> bytes:
    return fields.READ + committed.removeprefix(fields.COMMITTED)


def _ms(id: str) -> int:
    return number(id.partition("-")[0].encode()) or 0
