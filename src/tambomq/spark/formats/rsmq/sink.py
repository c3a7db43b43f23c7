"""Rows as RSMQ messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.errors import InvalidFormat, InvalidValue, MessageTooLong
from tambomq.journal.recording import Bounds
from tambomq.rsmq import sink_ops
from tambomq.rsmq.keys import NAMESPACE, Keys, check_queue
from tambomq.rsmq.model import UNLIMITED, check_seconds
from tambomq.rsmq.recorded import recording_keys
from tambomq.spark import schemas
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import COMMON, Sink, sink_of
from tambomq.spark.sink_journal import JOURNAL, journal_of
from tambomq.spark.sink_rows import Field, Layout, Rows, as_bytes, as_floats, fields
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "rsmq"
OPTIONS: Final = (*COMMON, *JOURNAL, "ns")
FIELDS: Final = fields(schemas.RSMQ_WRITTEN, body=as_bytes, delay_s=as_floats)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink that the options of a write come to."""
    with told_in_one_line():
        return sink_of(_target, Given(SOURCE, options, OPTIONS), schema, overwrite=overwrite)


def _target(given: Given) -> RsmqTarget:
    queue = given.text("queue", None)
    return RsmqTarget(
        Keys(given.text("ns", NAMESPACE)),
        None if queue is None else check_queue(queue),
        journal=journal_of(given),
    )


@dataclass(frozen=True, slots=True)
class RsmqTarget:
    """Queues of one namespace. They must be there: only their owner knows their settings."""

    keys: Keys
    queue: str | None = None
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("body",)
    queue_column: str = "queue"
    journal: Bounds | None = None

    def packer(self, store: Store, layout: Layout) -> RsmqPacker:
        """Return what makes calls in one task."""
        keys = recording_keys(self.keys.ns, ("*",), self.journal) if self.journal else self.keys
        return RsmqPacker(keys, store, has_delays="delay_s" in layout.places)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return self.keys.fence(queue, query)


class RsmqPacker:
    """Makes sends out of rows; asks once for each queue how long a body may be."""

    def __init__(self, keys: Keys, store: Store, *, has_delays: bool) -> None:
        self._keys, self._store, self._has_delays = keys, store, has_delays
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
        """Return body and delay of each row, and by its place why a row cannot be written."""
        bodies, delays, longest = rows.get("body"), rows.get("delay_s"), self._longest[queue]
        faults: dict[int, str] = {}
        most = float("inf") if longest in (None, UNLIMITED) else longest
        for place, body in enumerate(bodies):
            if body is None:
                faults[place] = "body is null"
            elif len(body) > most:
                faults[place] = str(MessageTooLong(queue, len(body), int(most)))
        if self._has_delays:
            faults |= _wrong_delays(delays)
        return list(zip(bodies, delays, strict=True)), faults

    def call(self, queue: str, task: Task, mark: Mark, items: Sequence[Any]) -> Call[int]:
        """Return what sends *items*, unless *mark* says they are there."""
        bodies, delays = zip(*items, strict=True)
        chosen = delays if self._has_delays else ()
        return sink_ops.send(self._keys, queue, task.query, mark, bodies, chosen)


def _wrong_delays(delays: Sequence[Any]) -> dict[int, str]:
    faults = {}
    for place, delay in enumerate(delays):
        try:
            if delay is not None:
                check_seconds("delay_s", delay)
        except InvalidValue as fault:
            faults[place] = str(fault)
    return faults
