"""What a protocol has to say so that rows can be written to its queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tambomq.spark.fence import Mark, Task
from tambomq.spark.sink_rows import Field, Layout, Rows
from tambomq.store.call import Call
from tambomq.store.sync import Store


class Packer(Protocol):
    """Makes calls out of rows, in one task."""

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:
        """Return an item for each row, and by its place why a row cannot be written."""

    def call(self, queue: str, task: Task, mark: Mark, items: Sequence[Any]) -> Call[int]:
        """Return what writes *items*, unless *mark* says they are there."""


class Target(Protocol):
    """What a protocol takes. It holds plain values, since Spark sends it to its workers."""

    @property
    def source(self) -> str:
        """The format."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that may be written."""

    @property
    def bodies(self) -> tuple[str, ...]:
        """The names that the column with the body may have."""

    @property
    def queue_column(self) -> str:
        """The name of the column that says where a row goes."""

    @property
    def queue(self) -> str | None:
        """Where rows go that do not say it themselves."""

    def packer(self, store: Store, layout: Layout) -> Packer:
        """Return what makes calls in one task."""

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
