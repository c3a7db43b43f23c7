"""Sink that writes rows as RSMQ messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.errors import InvalidFormat, InvalidValue, MessageTooLong
from tambomq.journal.policy import JournalPolicy
from tambomq.rsmq.bulk import sink as sink_ops
from tambomq.rsmq.keys import NAMESPACE, Keys, check_queue
from tambomq.rsmq.model import UNLIMITED, check_seconds
from tambomq.rsmq.ops.journal import journal_policy
from tambomq.spark.core import schemas
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.journal import JOURNAL, bounds_of
from tambomq.spark.sink.rows import Field, Layout, Rows, as_bytes, as_floats, fields
from tambomq.spark.sink.writer import COMMON, Sink, sink_of
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "rsmq"
OPTIONS: Final = (*COMMON, *JOURNAL, "ns")
FIELDS: Final = fields(schemas.RSMQ_WRITTEN, body=as_bytes, delay_s=as_floats)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink for the options of a write."""
    with one_line_errors():
        return sink_of(
            _target, SourceOptions(SOURCE, options, OPTIONS), schema, overwrite=overwrite
        )


def _target(options: SourceOptions) -> RsmqTarget:
    queue, ns, bounds = (
        options.text("queue", None),
        options.text("ns", NAMESPACE),
        bounds_of(options),
    )
    return RsmqTarget(
        Keys(ns),
        None if queue is None else check_queue(queue),
        journal=journal_policy(ns, ("*",), bounds) if bounds else None,
    )


@dataclass(frozen=True, slots=True)
class RsmqTarget:
    """Queues of one namespace. They must exist: the sink does not know their settings."""

    keys: Keys
    queue: str | None = None
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("body",)
    queue_column: str = "queue"
    journal: JournalPolicy | None = None

    def packer(self, store: Store, layout: Layout) -> RsmqPacker:
        """Return the packer for one task."""
        has_delays = "delay_s" in layout.indexes
        return RsmqPacker(self.keys, store, has_delays=has_delays, journal=self.journal)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return self.keys.fence(queue, query)


class RsmqPacker:
    """Turns rows into calls that send them; reads the maximal body size once per queue."""

    def __init__(
        self, keys: Keys, store: Store, *, has_delays: bool, journal: JournalPolicy | None = None
    ) -> None:
        self._keys, self._store, self._has_delays = keys, store, has_delays
        self._journal = journal
        self._longest: dict[str, int | None] = {}

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            check_queue(queue)
        except InvalidFormat as fault:
            return str(fault)
        if queue not in self._longest:
            self._longest[queue] = self._store.run(sink_ops.longest(self._keys, queue))
        return f"queue {queue!r} does not exist" if self._longest[queue] is None else None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:
        """Return body and delay of each row, and by row index why rows cannot be written."""
        bodies, delays, longest = rows.get("body"), rows.get("delay_s"), self._longest[queue]
        faults: dict[int, str] = {}
        max_bytes = float("inf") if longest in (None, UNLIMITED) else longest
        for index, body in enumerate(bodies):
            if body is None:
                faults[index] = "body is null"
            elif len(body) > max_bytes:
                faults[index] = str(MessageTooLong(queue, len(body), int(max_bytes)))
        if self._has_delays:
            faults |= _wrong_delays(delays)
        return list(zip(bodies, delays, strict=True)), faults

    def call(
        self, queue: str, task: Task, chunk_token: ChunkToken, items: Sequence[Any]
    ) -> Call[int]:
        """Return the call that sends *items*, unless *chunk_token* is already stored."""
        bodies, delays = zip(*items, strict=True)
        chosen = delays if self._has_delays else ()
        return sink_ops.send(
            self._keys, queue, task.query, chunk_token, bodies, chosen, journal=self._journal
        )


def _wrong_delays(delays: Sequence[Any]) -> dict[int, str]:
    faults = {}
    for index, delay in enumerate(delays):
        try:
            if delay is not None:
                check_seconds("delay_s", delay)
        except InvalidValue as fault:
            faults[index] = str(fault)
    return faults
