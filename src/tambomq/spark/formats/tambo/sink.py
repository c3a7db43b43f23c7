"""Rows as entries of journals: what passed through a queue, told by whoever knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import StructType

from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal import keys, sink_ops
from tambomq.journal.keys import PROTOCOLS, Keys, check_queue
from tambomq.spark import schemas
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import COMMON, Sink, sink_of
from tambomq.spark.sink_rows import Field, Layout, Rows, as_bytes, as_ms, fields
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

# In the order in which a journal has them: entries with the same fields take less room.
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
    """Return the sink that the options of a write come to."""
    with told_in_one_line():
        return sink_of(_target, Given(SOURCE, options, OPTIONS), schema, overwrite=overwrite)


def _target(given: Given) -> TamboTarget:
    queue = given.text("queue", None)
    protocol = given.one_of("protocol", PROTOCOLS, given.text("protocol"))
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

    def packer(self, store: Store, layout: Layout) -> TamboPacker:  # noqa: ARG002  (nothing to ask)
        """Return what makes calls in one task."""
        return TamboPacker(self.protocol, layout)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return Keys(self.protocol, queue).fence(query)


class TamboPacker:
    """Makes entries out of rows, and appends these."""

    def __init__(self, protocol: str, layout: Layout) -> None:
        self._protocol = protocol
        self._own = [name for name in _WORDS if name in layout.places]

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            check_queue(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:  # noqa: ARG002  (all take the same)
        """Return the fields of each row, and by its place why a row cannot be written."""
        now, faults = now_ms(), dict[int, str]()
        found = {name: rows.columns[name] for name in self._own}
        if "event" in found:
            found["event"] = [value or _SENT for value in found["event"]]
        if "at" in found:
            found["at"] = [now if value is None else value for value in found["at"]]
        for name in found.keys() & _NUMBERS:
            found[name] = _digits(name, found[name], faults)
        for name in found.keys() & _TEXTS:
            # Whoever reads it cannot tell an empty one from none.
            found[name] = [value or None for value in found[name]]
        return list(zip(*found.values(), strict=True)), faults

    def call(self, queue: str, task: Task, mark: Mark, items: Sequence[Any]) -> Call[int]:
        """Return what appends *items*, unless *mark* says they are there."""
        same = {"event": _SENT, "at": b"%d" % now_ms()}
        words = [
            (word, None if name in self._own else same[name])
            for name, word in _WORDS.items()
            if name in self._own or name in same
        ]
        return sink_ops.record(Keys(self._protocol, queue), task.query, mark, words, items)


def _digits(what: str, values: Sequence[int | None], faults: dict[int, str]) -> list[bytes | None]:
    """Return numbers as a journal has them; add to *faults* those that it cannot have."""
    for place, value in enumerate(values):
        if value is not None and value < 0:
            faults.setdefault(place, str(InvalidValue(what, value, "a whole number from 0 on")))
    return [None if value is None else b"%d" % value for value in values]
