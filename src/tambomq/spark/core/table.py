"""`Table`, the protocol of readable tables: columns, queues, ranges, and pages of rows.

A table is picklable, since Spark sends it to its workers; each call gets the store to read with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from tambomq.spark.core.columns import Columns
from tambomq.store.sync import Store


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds that filters put on columns; reading more rows than they allow is fine.

    By column: the lowest and the highest value, both included, and the only possible values.
    """

    lowest: dict[str, Any] = field(default_factory=dict)
    highest: dict[str, Any] = field(default_factory=dict)
    only: dict[str, frozenset[Any]] = field(default_factory=dict)

    def allows(self, column: str, value: Any) -> bool:
        """Whether a row may have *value* in *column*."""
        return column not in self.only or value in self.only[column]


@dataclass(frozen=True, slots=True)
class Range:
    """A part of one queue; each table defines what *low* and *high* mean."""

    queue: str
    low: Any = None
    high: Any = None


class Table(Protocol):
    """Rows that can be read without changing anything."""

    @property
    def columns(self) -> Columns:
        """The columns of a row."""

    def names(self, store: Store) -> Iterator[str]:
        """Yield all existing queues, once each, reading page by page."""

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return at most *pieces* ranges of about the same size; fewer if the queue is small.

        Raises `QueueNotFound` where a protocol knows which queues exist.
        """

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *part*, page by page."""
