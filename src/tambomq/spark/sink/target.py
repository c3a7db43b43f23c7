"""`SinkTarget` and `Packer`: what a protocol implements so that Spark can write to its queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.rows import Field, Layout, Rows
from tambomq.store.call import Call
from tambomq.store.sync import Store


class Packer(Protocol):
    """Turns the rows of one task into calls."""

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:
        """Return an item for each row, and by row index why rows cannot be written."""

    def call(
        self, queue: str, task: Task, chunk_token: ChunkToken, items: Sequence[Any]
    ) -> Call[int]:
        """Return the call that writes *items*, unless *chunk_token* is already stored."""


class SinkTarget(Protocol):
    """Where and how rows are written. It must be picklable: Spark sends it to its workers."""

    @property
    def source(self) -> str:
        """The name of the format."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that may be written."""

    @property
    def bodies(self) -> tuple[str, ...]:
        """The names that the column with the body may have."""

    @property
    def queue_column(self) -> str:
        """The name of the column with a row's queue."""

    @property
    def queue(self) -> str | None:
        """The queue of rows that name none."""

    def packer(self, store: Store, layout: Layout) -> Packer:
        """Return the packer for one task."""

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
