"""Rows as GOMQ messages: they wait in a main queue until a server next looks there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.clock import now_s, unix_date
from tambomq.errors import InvalidFormat, MessageTooLong
from tambomq.gomq import keys, sink_ops, wire
from tambomq.gomq.model import MAX_MESSAGE_BYTES, RECORD_BYTES
from tambomq.ids import Xids
from tambomq.journal.recording import Bounds
from tambomq.spark import schemas
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import COMMON, Sink, sink_of
from tambomq.spark.sink_journal import JOURNAL, journal_of
from tambomq.spark.sink_rows import Field, Layout, Rows, as_bytes, fields
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "gomq"
OPTIONS: Final = (*COMMON, *JOURNAL, "key", "maxMessageBytes")
FIELDS: Final = fields(schemas.GOMQ_WRITTEN, payload=as_bytes)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink that the options of a write come to."""
    with told_in_one_line():
        return sink_of(_target, Given(SOURCE, options, OPTIONS), schema, overwrite=overwrite)


def _target(given: Given) -> GomqTarget:
    key = given.text("key", given.text("queue", None))
    if key is not None:
        keys.check_key(key)
    most = given.number("maxMessageBytes", MAX_MESSAGE_BYTES, least=1 << 16)
    return GomqTarget(key, most, journal=journal_of(given))


@dataclass(frozen=True, slots=True)
class GomqTarget:
    """Main queues. *max_message_bytes* is what the servers were told: a reply must have room."""

    queue: str | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("payload",)
    queue_column: str = "key"
    journal: Bounds | None = None

    def packer(self, store: Store, layout: Layout) -> GomqPacker:  # noqa: ARG002  (nothing to ask)
        """Return what makes calls in one task."""
        return GomqPacker(self.max_message_bytes, self.journal)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return keys.fence(queue, query)


class GomqPacker:
    """Makes elements out of rows, and appends these."""

    def __init__(self, max_message_bytes: int, journal: Bounds | None = None) -> None:
        self._most, self._xids, self._journal = max_message_bytes, Xids(), journal

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            keys.check_key(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:
        """Return the element of each row, and by its place why a row cannot be written."""
        most = self._most - len(queue.encode()) - RECORD_BYTES
        now = now_s()
        date, next_id, encode = unix_date(now), self._xids.next, wire.encode
        items: list[Any] = []
        faults: dict[int, str] = {}
        for place, payload in enumerate(rows.get("payload")):
            if payload is None:
                faults[place] = "payload is null"
            elif len(payload) > most:
                faults[place] = str(MessageTooLong(queue, len(payload), most))
            items.append(encode(next_id(now), date, payload or b""))
        return items, faults

    def call(self, queue: str, task: Task, mark: Mark, items: Sequence[Any]) -> Call[int]:
        """Return what appends *items*, unless *mark* says they are there."""
        return sink_ops.push(queue, task.query, mark, items, self._journal)
