"""How much to ask for at once, where nobody knows how large the next answer will be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ENOUGH_BYTES: Final = 4 << 20
"""Of one answer: more is no faster, and a worker has to hold it."""
_FIRST: Final = 4
_FASTER: Final = 4


class Pace:
    """Says how many to ask for, from what came before; never more than *most*."""

    def __init__(self, most: int) -> None:
        # A body may have 16 MiB. Few are asked for until it is known how large they are.
        self._most, self.count = most, min(_FIRST, most)

    def note(self, answer: Iterable[bytes | None]) -> None:
        """Learn from what came."""
        sizes = [len(each) for each in answer if each is not None]
        fitting = ENOUGH_BYTES // max(1, sum(sizes) // max(1, len(sizes)))
        self.count = max(1, min(fitting, self.count * _FASTER, self._most))
