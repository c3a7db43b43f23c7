"""Sink that writes rows as GOMQ messages to main queues, which servers poll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.clock import now_s, unix_date
from tambomq.errors import InvalidFormat, MessageTooLong
from tambomq.gomq import keys, wire
from tambomq.gomq.bulk import sink as sink_ops
from tambomq.gomq.model import MAX_MESSAGE_BYTES, RECORD_BYTES
from tambomq.ids import Xids
from tambomq.journal.policy import JournalPolicy
from tambomq.spark.core import schemas
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.journal import JOURNAL, journal_of
from tambomq.spark.sink.rows import Field, Layout, Rows, as_bytes, fields
from tambomq.spark.sink.writer import COMMON, Sink, sink_of
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "gomq"
OPTIONS: Final = (*COMMON, *JOURNAL, "key", "maxMessageBytes")
FIELDS: Final = fields(schemas.GOMQ_WRITTEN, payload=as_bytes)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink for the options of a write."""
    with one_line_errors():
        return sink_of(
            _target, SourceOptions(SOURCE, options, OPTIONS), schema, overwrite=overwrite
        )


def _target(options: SourceOptions) -> GomqTarget:
    key = options.text("key", options.text("queue", None))
    if key is not None:
        keys.check_key(key)
    max_bytes = options.number("maxMessageBytes", MAX_MESSAGE_BYTES, min_value=1 << 16)
    return GomqTarget(key, max_bytes, journal=journal_of(options, SOURCE))


@dataclass(frozen=True, slots=True)
class GomqTarget:
    """The main queue. *max_message_bytes* is the servers' setting: a message must fit a reply."""

    queue: str | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("payload",)
    queue_column: str = "key"
    journal: JournalPolicy | None = None

    def packer(self, store: Store, layout: Layout) -> GomqPacker:  # noqa: ARG002  (needs no reads)
        """Return the packer for one task."""
        return GomqPacker(self.max_message_bytes, self.journal)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return keys.fence(queue, query)


class GomqPacker:
    """Turns rows into list elements, and elements into calls that append them."""

    def __init__(self, max_message_bytes: int, journal: JournalPolicy | None = None) -> None:
        self._max_message_bytes, self._xids, self._journal = max_message_bytes, Xids(), journal

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            keys.check_key(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:
        """Return the element of each row, and by row index why rows cannot be written."""
        max_bytes = self._max_message_bytes - len(queue.encode()) - RECORD_BYTES
        now = now_s()
        date, next_id, encode = unix_date(now), self._xids.next, wire.encode
        items: list[Any] = []
        faults: dict[int, str] = {}
        for index, payload in enumerate(rows.get("payload")):
            if payload is None:
                faults[index] = "payload is null"
            elif len(payload) > max_bytes:
                faults[index] = str(MessageTooLong(queue, len(payload), max_bytes))
            items.append(encode(next_id(now), date, payload or b""))
        return items, faults

    def call(
        self, queue: str, task: Task, chunk_token: ChunkToken, items: Sequence[Any]
    ) -> Call[int]:
        """Return the call that appends *items*, unless *chunk_token* is already stored."""
        return sink_ops.push(queue, task.query, chunk_token, items, self._journal)
