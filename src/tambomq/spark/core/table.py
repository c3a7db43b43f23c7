"""What a table is: columns, queues to find it in, ranges to read, and pages of rows.

A table holds plain values, since Spark sends it to its workers; it is given a store to read with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tambomq.spark.columns import Columns
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of the rows that are wanted; more may be read, never less.

    By column: the lowest and the highest value, both included, and the only values there may be.
    """

    lowest: dict[str, Any] = field(default_factory=dict)
    highest: dict[str, Any] = field(default_factory=dict)
    only: dict[str, frozenset[Any]] = field(default_factory=dict)

    def allows(self, column: str, value: Any) -> bool:
        """Whether a row may have *value* there."""
        return column not in self.only or value in self.only[column]


@dataclass(frozen=True, slots=True)
class Range:
    """A part of one queue; what *low* and *high* mean is the table's own affair."""

    queue: str
    low: Any = None
    high: Any = None


class Table(Protocol):
    """Rows that can be read without changing anything."""

    @property
    def columns(self) -> Columns:
        """What a row has."""

    def names(self, store: Store) -> Iterator[str]:
        """Yield the queues there are, once each, a page at a time."""

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of about the same size; fewer than *pieces* if it is small.

        Raises `QueueNotFound` where a protocol knows which queues exist.
        """

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *part*, a page at a time."""
