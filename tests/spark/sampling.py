"""The part of a crash matrix to run: all of it, or a sample drawn by a seed.

``TAMBO_TEST_MATRIX=all`` runs all. Otherwise ``TAMBO_TEST_SEED``, any text, draws a sample in which
each row and each column occurs, so that every run covers each protocol and each point of death.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import product
from typing import TypeVar

_Row = TypeVar("_Row")
_Column = TypeVar("_Column")
_DEFAULT_SEED = "tambo"


def seed() -> str:
    """What samples are drawn by."""
    return os.environ.get("TAMBO_TEST_SEED") or _DEFAULT_SEED


def is_whole() -> bool:
    """Whether all of a matrix is wanted."""
    return os.environ.get("TAMBO_TEST_MATRIX") == "all"


def spread(
    name: str, rows: Sequence[_Row], columns: Sequence[_Column]
) -> list[tuple[_Row, list[_Column]]]:
    """Return the columns that each row of matrix *name* is tried with, in their order.

    In a sample each column occurs as often as the longer side needs, once where there are no more
    rows than columns, and no row is without one.
    """
    if is_whole():
        return [(row, list(columns)) for row in rows]
    chance = random.Random(f"{name} {seed()}")
    pairs: set[tuple[int, int]] = set()
    down, across = list(range(len(rows))), list(range(len(columns)))
    chance.shuffle(down)
    chance.shuffle(across)
    for place in range(max(len(down), len(across))):
        pairs.add((down[place % len(down)], across[place % len(across)]))
    return [
        (row, [column for at, column in enumerate(columns) if (number, at) in pairs])
        for number, row in enumerate(rows)
    ]


def pairs(
    name: str, rows: Sequence[_Row], columns: Sequence[_Column]
) -> list[tuple[_Row, _Column]]:
    """Return the same, as a pair for each field of the matrix that is tried."""
    if is_whole():
        return list(product(rows, columns))
    return [(row, column) for row, found in spread(name, rows, columns) for column in found]


def some(name: str, choices: Sequence[_Row], count: int) -> list[_Row]:
    """Return so many of *choices*, in their order; all of them if all is wanted."""
    if is_whole():
        return list(choices)
    chosen = set(random.Random(f"{name} {seed()}").sample(range(len(choices)), count))
    return [choice for number, choice in enumerate(choices) if number in chosen]
