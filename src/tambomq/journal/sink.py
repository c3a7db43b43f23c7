"""Calls that append chunks of journal entries, each chunk once.

One script appends a chunk and stores the chunk's token. A chunk whose token is already stored is
not appended again, so each call may be repeated after any failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress, groupby
from typing import TypeAlias

from tambomq.journal.keys import JournalKeys
from tambomq.store.call import Arg, Call, load_script

_RECORD = load_script("tambomq.journal", "sink_record")

Field: TypeAlias = tuple[bytes, bytes | None]
"""A name, and the value that all entries have, which is not empty; `None` if each has its own."""
Entry: TypeAlias = Sequence[bytes | None]
"""Its own values; `None` for a field that it leaves out."""


def record(
    keys: JournalKeys,
    query: str,
    chunk_token: Sequence[Arg],
    fields: Sequence[Field],
    entries: Sequence[Entry],
) -> Call[int]:
    """Append *entries* as one chunk; 1, or 0 if the chunk was appended before.

    *chunk_token* is the batch number, the chunk's token and digest, and how many seconds to keep
    these; -1 means that the token was used with another digest, -2 that the batch is below the
    fence's floor.
    """
    words: list[Arg] = []
    for has, run in _runs(entries):
        pattern = _pattern(fields, has)
        words += (len(run), len(pattern), *pattern)
        own = run if all(has) else (compress(entry, has) for entry in run)
        words += chain.from_iterable(own)  # type: ignore[arg-type]  # None is what `has` leaves out
    redis_keys = (keys.journal, keys.fence(query))
    return Call(_RECORD, redis_keys, (*chunk_token, *words), decode=int, repeatable=True)


def _runs(entries: Sequence[Entry]) -> Iterator[tuple[tuple[bool, ...], Sequence[Entry]]]:
    """Yield runs of entries that have the same fields, and which of the fields these are."""
    if not any(None in values for values in zip(*entries, strict=True)):
        yield (True,) * len(entries[0]), entries
        return
    for has, run in groupby(entries, lambda entry: tuple(each is not None for each in entry)):
        yield has, list(run)


def _pattern(fields: Sequence[Field], has: Iterable[bool]) -> list[bytes]:
    """Return names and values in turn, with empty values for those that differ by entry."""
    words, left = list[bytes](), iter(has)
    for name, value in fields:
        if value is not None:
            words += (name, value)
        elif next(left):
            words += (name, b"")
    return words
