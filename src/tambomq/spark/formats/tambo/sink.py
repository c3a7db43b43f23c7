"""Sink that writes rows as journal entries, such as events of queues outside TamboMQ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal import keys
from tambomq.journal import sink as sink_ops
from tambomq.journal.keys import PROTOCOLS, JournalKeys, check_queue
from tambomq.spark.core import schemas
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.rows import Field, Layout, Rows, as_bytes, as_ms, fields
from tambomq.spark.sink.writer import COMMON, Sink, sink_of
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "tambo"
OPTIONS: Final = (*COMMON, "protocol")
FIELDS: Final = fields(
    schemas.TAMBO_WRITTEN,
    body=as_bytes,
    event=as_bytes,
    id=as_bytes,
    at=as_ms,
    name=as_bytes,
    reason=as_bytes,
)

# In the journal's own order: entries with the same fields in the same order take less memory.
_WORDS: Final = {
    "event": keys.EVENT,
    "id": keys.ID,
    "at": keys.AT,
    "name": keys.NAME,
    "delay_ms": keys.DELAY,
    "attempt": keys.ATTEMPT,
    "reason": keys.REASON,
    "body": keys.BODY,
}
_SENT: Final = keys.SENT.encode()
_NUMBERS, _TEXTS = frozenset(("at", "delay_ms", "attempt")), frozenset(("id", "name", "reason"))


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink for the options of a write."""
    with one_line_errors():
        return sink_of(
            _target, SourceOptions(SOURCE, options, OPTIONS), schema, overwrite=overwrite
        )


def _target(options: SourceOptions) -> TamboTarget:
    queue = options.text("queue", None)
    protocol = options.one_of("protocol", PROTOCOLS, options.text("protocol"))
    return TamboTarget(protocol, None if queue is None else check_queue(queue))


@dataclass(frozen=True, slots=True)
class TamboTarget:
    """Journals of the queues of one protocol. A journal begins with its first entry."""

    protocol: str
    queue: str | None = None
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("body",)
    queue_column: str = "queue"

    def packer(self, store: Store, layout: Layout) -> TamboPacker:  # noqa: ARG002  (needs no reads)
        """Return the packer for one task."""
        return TamboPacker(self.protocol, layout)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return JournalKeys(self.protocol, queue).fence(query)


class TamboPacker:
    """Turns rows into journal entries, and entries into calls that append them."""

    def __init__(self, protocol: str, layout: Layout) -> None:
        self._protocol = protocol
        self._own = [name for name in _WORDS if name in layout.indexes]

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            check_queue(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:  # noqa: ARG002  (same for all queues)
        """Return the fields of each row, and by row index why rows cannot be written."""
        now, faults = now_ms(), dict[int, str]()
        found = {name: rows.columns[name] for name in self._own}
        if "event" in found:
            found["event"] = [value or _SENT for value in found["event"]]
        if "at" in found:
            found["at"] = [now if value is None else value for value in found["at"]]
        for name in found.keys() & _NUMBERS:
            found[name] = _digits(name, found[name], faults)
        for name in found.keys() & _TEXTS:
            # Readers do not distinguish empty from missing.
            found[name] = [value or None for value in found[name]]
        return list(zip(*found.values(), strict=True)), faults

    def call(
        self, queue: str, task: Task, chunk_token: ChunkToken, items: Sequence[Any]
    ) -> Call[int]:
        """Return the call that appends *items*, unless *chunk_token* is already stored."""
        same = {"event": _SENT, "at": b"%d" % now_ms()}
        words = [
            (word, None if name in self._own else same[name])
            for name, word in _WORDS.items()
            if name in self._own or name in same
        ]
        return sink_ops.record(
            JournalKeys(self._protocol, queue), task.query, chunk_token, words, items
        )


def _digits(what: str, values: Sequence[int | None], faults: dict[int, str]) -> list[bytes | None]:
    """Return numbers as decimal text; add negative ones to *faults*."""
    for index, value in enumerate(values):
        if value is not None and value < 0:
            faults.setdefault(index, str(InvalidValue(what, value, "a whole number from 0 on")))
    return [None if value is None else b"%d" % value for value in values]
