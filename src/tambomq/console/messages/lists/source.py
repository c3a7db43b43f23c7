"""`MessageSource`: messages of one queue in one state, read part by part. No protocol, no Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from tambomq.console.messages.cursor import Position
from tambomq.console.messages.model import MessageRow

_RESCANNED: Final = 10_000
"""Members that are read again at most, to find a place that was lost by changes."""


class PlacedRow(msgspec.Struct, frozen=True):
    """A message of a list, and its place there."""

    position: Position
    row: MessageRow
    body: str
    """The text in which a search looks."""


class ListPart(msgspec.Struct, frozen=True):
    """Messages that follow a position."""

    items: Sequence[PlacedRow]
    looked_at: int
    next: Position | None
    """Where to read on; `None` at the end."""


class MessageSource(Protocol):
    """Messages of one queue in one state, in a fixed order."""

    note: str
    """Why it is empty, if the protocol is the reason."""

    async def total(self) -> int | None:
        """Return how many there are; `None` if counting them would cost too much."""

    async def part(self, after: Position | None, count: int) -> ListPart:
        """Return about *count* messages after a position; raise `InvalidFormat` if it is none."""


class EmptySource:
    """No messages."""

    def __init__(self, note: str = "") -> None:
        self.note = note

    async def total(self) -> int | None:
        """Return 0."""
        return 0

    async def part(self, after: Position | None, count: int) -> ListPart:  # noqa: ARG002  (as the others)
        """Return nothing."""
        return ListPart((), 0, None)


class ScoredValue(Protocol):
    """A member of a sorted set."""

    @property
    def place(self) -> tuple[str, bytes]:
        """Its score as Redis writes it, and the bytes by which members of one score are ordered."""


M = TypeVar("M", bound=ScoredValue)
Fetch = Callable[[str | None, int, int], Awaitable[tuple[list[M], bool]]]
"""Reads members from a score on (`None`: from the first), skipping some, and so many.

Returns them, and whether these are the last.
"""
Place = tuple[str, int, bytes]
"""A score, the number of members of that score up to here, and the bytes of the last of them."""


async def members_after(
    fetch: Fetch[M], at: Place | None, count: int, *, newest_first: bool = False
) -> tuple[list[tuple[Place, M]], bool]:
    """Return members that follow a place, each with its own, and whether these are the last.

    If the last member seen is no longer there, the place is found by the order of members.
    """
    if at is None:
        found, is_end = await fetch(None, 0, count)
        return _placed(found, "", 0), is_end
    score, skip, last = at
    found, is_end = await fetch(score, max(0, skip - 1), count + 1)
    if found and found[0].place == (score, last):
        return _placed(found[1:], score, skip), is_end
    skip, is_end = 0, False
    later: list[tuple[Place, M]] = []
    while not later and not is_end and skip < _RESCANNED:
        found, is_end = await fetch(score, skip, count)
        placed = _placed(found, score, skip)
        later = [each for each in placed if _is_after(each[1].place, (score, last), newest_first)]
        skip += len(found)
    return later, is_end


def _placed(members: list[M], score: str, skip: int) -> list[tuple[Place, M]]:
    placed = []
    for member in members:
        own, order = member.place
        skip = skip + 1 if own == score else 1
        score = own
        placed.append(((score, skip, order), member))
    return placed


def _is_after(place: tuple[str, bytes], last: tuple[str, bytes], newest_first: bool) -> bool:
    """Whether a member comes after the last one seen."""
    if place[0] != last[0]:
        return True
    return place[1] < last[1] if newest_first else place[1] > last[1]
