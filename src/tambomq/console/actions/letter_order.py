"""The order of dead letters across queues: the newest first, and positions in it.

A position is a letter, not a number: letters that die or leave meanwhile shift no page.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from heapq import heappop, heappush, heapreplace
from typing import Final

from tambomq.console.actions.letter_boxes import Letter, LetterBox
from tambomq.console.messages.cursor import decode_cursor, encode_cursor
from tambomq.errors import ActionRefused, InvalidFormat

_LIST: Final = "letters"

Place = tuple[int, str, str]
"""When a letter died, the digest of its queue, and its id."""


async def newest_first(
    boxes: Sequence[LetterBox], cursor: str | None, count: int
) -> AsyncIterator[Letter]:
    """Yield the letters of *boxes* that come after *cursor*, read *count* at a time.

    Raises `ActionRefused` if *cursor* is none of `cursor_of`.
    """
    after = _place_of(cursor) if cursor else None
    until_ms = after[0] if after else None
    found = [_letters(box, until_ms, count) for box in boxes]
    heads: list[tuple[tuple[int, str], int, Letter]] = []
    for number, letters in enumerate(found):
        if (first := await anext(letters, None)) is not None:
            heappush(heads, (_rank(first), number, first))
    while heads:
        _, number, letter = heads[0]
        if after is None or _is_after(letter, after):
            yield letter
        following = await anext(found[number], None)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (_rank(following), number, following))


def cursor_of(letter: Letter) -> str:
    """Return the position of *letter*, for callers that go on after it."""
    return encode_cursor(_LIST, (letter.died_ms, _digest(letter.queue), letter.id))


async def _letters(box: LetterBox, until_ms: int | None, count: int) -> AsyncIterator[Letter]:
    async for page in box.pages(until_ms, count):
        for each in page:
            yield each


def _rank(letter: Letter) -> tuple[int, str]:
    return -letter.died_ms, _digest(letter.queue)


def _place_of(cursor: str) -> Place:
    try:
        died_ms, queue, id = decode_cursor(_LIST, cursor)
    except (InvalidFormat, ValueError):
        raise _unknown(cursor) from None
    if not isinstance(died_ms, int) or not isinstance(queue, str) or not isinstance(id, str):
        raise _unknown(cursor)
    return died_ms, queue, id


def _unknown(cursor: str) -> ActionRefused:
    return ActionRefused(f"there is no page {cursor[:40]!r}: begin with the first one")


def _is_after(letter: Letter, place: Place) -> bool:
    died_ms, queue, id = place
    rank = _rank(letter)
    if rank != (-died_ms, queue):
        return rank > (-died_ms, queue)
    # Ids of one moment: of a stream they count up, of a sorted set they are in order of bytes.
    return (len(letter.id), letter.id) < (len(id), id)


def _digest(queue: str) -> str:
    """Return *queue* in a few characters, since a name may be longer than a cursor."""
    return hashlib.blake2s(queue.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
