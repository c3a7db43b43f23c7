"""Reads that are too costly for every queue at every refresh: each queue has its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Turns:
    """Hands out the items of a list that may change, *count* at a time, each once in a round."""

    def __init__(self, count: int) -> None:
        self._count, self._next = count, 0

    def take(self, items: Sequence[T]) -> list[T]:
        """Return the next items; all of them if they are few."""
        if len(items) <= self._count:
            return list(items)
        first = self._next % len(items)
        self._next = first + self._count
        return [*items[first : first + self._count], *items[: max(0, self._next - len(items))]]
