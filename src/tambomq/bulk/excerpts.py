"""Read-only calls that page through streams, sorted sets and lists without whole large values.

Of a value that is longer than asked for only its two ends are returned. One call reads at most
1 MB on the server, or one value that is larger: so it blocks other clients for a few milliseconds.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tambomq.store.call import Call, load_script

BYTES: Final = 2048
"""Of each value, unless asked otherwise."""
PAGE: Final = 500
"""Values looked at by one call."""

_STREAM = load_script("tambomq.bulk", "stream_excerpts")
_ZSET = load_script("tambomq.bulk", "zset_excerpts")
_LIST = load_script("tambomq.bulk", "list_excerpts")


class Excerpt(msgspec.Struct, frozen=True):
    """A value, or its two ends if it is long."""

    head: bytes
    tail: bytes
    """The last bytes; empty if `head` is all of it."""
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether `head` is all of it."""
        return len(self.head) == self.size

    @property
    def whole(self) -> bytes | None:
        """The value, if its two ends meet."""
        both = self.head + self.tail
        return both if len(both) == self.size else None


NOTHING: Final = Excerpt(b"", b"", 0)


class EntryExcerpt(msgspec.Struct, frozen=True):
    """A stream entry; of repeated fields the first counts."""

    id: str
    fields: dict[bytes, Excerpt]

    def text(self, field: bytes) -> str:
        """Return the beginning of a field as text; '' if it is missing."""
        return self.fields.get(field, NOTHING).head.decode("utf-8", "replace")


class EntryPage(msgspec.Struct, frozen=True):
    """Entries of a stream."""

    looked_at: int
    next: str | None
    """The id to continue after; `None` at the end."""
    entries: list[EntryExcerpt]


def entries(
    stream: str,
    after: str | None = None,
    *,
    newest_first: bool = False,
    until: str | None = None,
    count: int = PAGE,
    ends: int = BYTES,
    id: str = "",
) -> Call[EntryPage]:
    """Return entries that follow the id *after*, up to *until*, which is included.

    With *newest_first* those before *after*, newest first. *id* selects by the field ``id``.
    """
    verb, start, end = ("XREVRANGE", "+", "-") if newest_first else ("XRANGE", "-", "+")
    first = start if after is None else f"({after}"
    args = (verb, first, until or end, count, ends, id)
    return Call(_STREAM, (stream,), args, _entries, repeatable=True)


def entry(stream: str, id: str, *, ends: int = BYTES) -> Call[EntryPage]:
    """Return one entry, or none. *ends* is the size of an excerpt."""
    return Call(_STREAM, (stream,), ("XRANGE", id, id, 1, ends, ""), _entries, repeatable=True)


def members(
    zset: str, low: str, high: str, skip: int, count: int = PAGE, *, ends: int = BYTES
) -> Call[tuple[list[tuple[Excerpt, bytes]], bool]]:
    """Return members with scores from *low* to *high*, with their scores as Redis writes them.

    Also whether these are all; if they are large there may be fewer than *count*.
    """
    args = (low, high, skip, count, ends)
    return Call(_ZSET, (zset,), args, _members, repeatable=True)


def elements(name: str, first: int, count: int = PAGE, *, ends: int = BYTES) -> Call[list[Excerpt]]:
    """Return elements of a list from index *first* on; fewer than *count* if they are large."""
    return Call(_LIST, (name,), (first, count, ends), _elements, repeatable=True)


def _entries(reply: list[Any]) -> EntryPage:
    looked_at, last, *rows = reply
    found = []
    for id, flat in rows:
        fields: dict[bytes, Excerpt] = {}
        for name, head, tail, size in zip(
            flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True
        ):
            fields.setdefault(name, Excerpt(head, tail, size))
        found.append(EntryExcerpt(id.decode(), fields))
    return EntryPage(looked_at, last.decode() or None, found)


def _members(reply: list[Any]) -> tuple[list[tuple[Excerpt, bytes]], bool]:
    is_end, *flat = reply
    parts = zip(flat[::4], flat[1::4], flat[2::4], flat[3::4], strict=True)
    return [(Excerpt(head, tail, size), score) for head, tail, size, score in parts], bool(is_end)


def _elements(reply: list[Any]) -> list[Excerpt]:
    parts = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    return [Excerpt(head, tail, size) for head, tail, size in parts]
