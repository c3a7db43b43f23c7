"""Dead letters of several queues come in one order, and pages go on after a letter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from tambomq.console.actions.letter_boxes import Letter, LetterBox
from tambomq.console.actions.letter_order import cursor_of, newest_first
from tambomq.errors import ActionRefused


class Box:
    """The letters of a queue, in memory."""

    def __init__(self, *letters: Letter) -> None:
        self.letters = list(letters)

    async def pages(
        self, until_ms: int | None = None, count: int = 2
    ) -> AsyncIterator[list[Letter]]:
        """Yield those that died until *until_ms*."""
        known = [each for each in self.letters if until_ms is None or each.died_ms <= until_ms]
        for first in range(0, len(known), count):
            yield known[first : first + count]


def letter(queue: str, id: str, died_ms: int) -> Letter:
    return Letter(queue, id, id, "", "reason", "error", died_ms)


MAILS = Box(
    letter("chasqui:m", "9-1", 9), letter("chasqui:m", "9-0", 9), letter("chasqui:m", "3-0", 3)
)
ORDERS = Box(letter("rsmq:o", "z", 9), letter("rsmq:o", "b", 7), letter("rsmq:o", "a", 7))


async def read(boxes: Sequence[Box], cursor: str | None = None) -> list[Letter]:
    found = newest_first(cast("Sequence[LetterBox]", boxes), cursor, 2)
    return [each async for each in found]


async def test_queues_are_merged_by_when_letters_died() -> None:
    found = await read([MAILS, ORDERS])
    assert [each.died_ms for each in found] == [9, 9, 9, 7, 7, 3]
    assert len({(each.queue, each.id) for each in found}) == 6


@pytest.mark.parametrize("after", range(6))
async def test_a_page_goes_on_after_any_letter_also_if_that_has_left(after: int) -> None:
    everything = await read([MAILS, ORDERS])
    last = everything[after]
    assert await read([MAILS, ORDERS], cursor_of(last)) == everything[after + 1 :]
    left = [Box(*(each for each in box.letters if each != last)) for box in (MAILS, ORDERS)]
    assert await read(left, cursor_of(last)) == everything[after + 1 :]


async def test_letters_that_die_meanwhile_shift_no_page() -> None:
    everything = await read([MAILS, ORDERS])
    newer = Box(letter("rsmq:o", "y", 20), *ORDERS.letters)
    assert await read([MAILS, newer], cursor_of(everything[1])) == everything[2:]


@pytest.mark.parametrize("cursor", ["x", "25", "WyJvdGhlciIsWzFdXQ", "WyJsZXR0ZXJzIixbMV1d"])
async def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ActionRefused, match="begin with the first one"):
        await read([MAILS], cursor)
