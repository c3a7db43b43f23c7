"""Rows as ChasquiMQ jobs, as `Queue.add` would have added them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from tambomq.chasqui import sink_ops
from tambomq.chasqui.add_options import due_at
from tambomq.chasqui.job import retry_override
from tambomq.chasqui.keys import Keys, check_name, check_queue
from tambomq.chasqui.ops import MAX_STREAM_LEN, Draft, Policy, draft
from tambomq.chasqui.packing import encode_payload
from tambomq.chasqui.wire import DIALECTS
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, LocalProtocolError, SettingsError
from tambomq.ids import ulids
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import COMMON, Sink, sink_of
from tambomq.spark.sink_rows import MOMENT, NUMBER, TEXT, WHOLE, Field, Layout, Rows, as_ms, plain
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "chasqui"
OPTIONS: Final = (*COMMON, "name", "maxStreamLen", "overflow", "dialect")
_ANY: Final = ("binary", "string", "struct", "map", "array", "boolean", "date", *NUMBER, *MOMENT)
_USUAL: Final = Policy()
_PLAIN: Final = frozenset(("payload", "data", "name", "queue"))


def as_packed(column: pa.Array) -> list[bytes | None]:
    """Return values as MessagePack; bytes are that already."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return plain(column)
    values = column.to_pylist(maps_as_pydicts="strict")
    return [None if value is None else encode_payload(value) for value in values]


FIELDS: Final = (
    Field("payload", _ANY, "the job's data: bytes are MessagePack, all else becomes it", as_packed),
    Field("data", _ANY, "the same by another name", as_packed),
    Field("queue", TEXT, "the queue it goes to; null for that of the option queue"),
    Field("name", TEXT, "what it is dispatched by; null for the option name"),
    Field("id", TEXT, "its id, which counts once; null for a fresh one"),
    Field("delay_ms", WHOLE, "milliseconds before it waits for a worker; null for none"),
    Field("run_at", MOMENT, "from when on it waits for a worker; null for now", as_ms),
    Field("attempts", WHOLE, "how often it may run; null for the worker's own"),
    Field("backoff", (*WHOLE, "struct"), "ms between runs, or kind, delay_ms, max_delay_ms, …"),
)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink that the options of a write come to."""
    with told_in_one_line():
        made = sink_of(_target, Given(SOURCE, options, OPTIONS), schema, overwrite=overwrite)
        if {"delay_ms", "run_at"} <= made.layout.places.keys():
            fault = "these rows cannot be written: give only one of the columns delay_ms or run_at"
            raise SettingsError(f"format {SOURCE!r}: {fault}")
        return made


def _target(given: Given) -> ChasquiTarget:
    queue = given.text("queue", None)
    policy = Policy(
        max_stream_len=given.number("maxStreamLen", MAX_STREAM_LEN),
        overflow=given.one_of("overflow", ("refuse", "trim"), "refuse"),
        dialect=given.one_of("dialect", DIALECTS, "page"),
    )
    name = check_name(given.text("name", None) or "")
    return ChasquiTarget(None if queue is None else check_queue(queue), policy, name)


@dataclass(frozen=True, slots=True)
class ChasquiTarget:
    """Queues, and how they take jobs."""

    queue: str | None = None
    policy: Policy = _USUAL
    name: str = ""
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("payload", "data")
    queue_column: str = "queue"

    def packer(self, store: Store, layout: Layout) -> ChasquiPacker:  # noqa: ARG002  (nothing to ask)
        """Return what makes calls in one task."""
        return ChasquiPacker(self.policy, self.name, layout)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return Keys(queue).fence(query)


class ChasquiPacker:
    """Makes jobs out of rows, and adds these."""

    def __init__(self, policy: Policy, name: str, layout: Layout) -> None:
        self._policy, self._name, self._body = policy, name, layout.body
        self._is_plain = layout.places.keys() <= _PLAIN
        # What was packed here needs no second look.
        self._check = msgspec.msgpack.Decoder(msgspec.Raw).decode
        self._is_foreign = layout.kinds[layout.body] == "binary"

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            check_queue(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:  # noqa: ARG002  (all take the same)
        """Return the job of each row, and by its place why a row cannot be written."""
        now, faults = now_ms(), dict[int, str]()
        payloads, names = rows.get(self._body), rows.get("name")
        items: list[Draft | None] = []
        fresh, checked = ulids(now, len(rows)), set[str]()
        others = [rows.get(each) for each in ("id", "delay_ms", "run_at", "attempts", "backoff")]
        for place, payload in enumerate(payloads):
            name = self._name if names[place] is None else names[place]
            try:
                self._check_payload(payload)
                if self._is_plain:
                    # Most rows have the name of another.
                    if name not in checked:
                        checked.add(check_name(name))
                    items.append(Draft(fresh[place], name, payload, now))
                else:
                    items.append(self._draft(now, name, payload, *(v[place] for v in others)))
            except LocalProtocolError as fault:
                faults[place] = str(fault)
                items.append(None)
        return items, faults

    def _check_payload(self, payload: bytes | None) -> None:
        if payload is None:
            raise LocalProtocolError(f"{self._body} is null")
        if self._is_foreign:
            try:
                self._check(payload)
            except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
                raise LocalProtocolError(f"{self._body} is no MessagePack: {fault}") from fault

    def _draft(
        self,
        now: int,
        name: str,
        payload: bytes,
        id: str | None,
        delay_ms: int | None,
        run_at: int | None,
        attempts: int | None,
        backoff: Any,
    ) -> Draft:
        if isinstance(backoff, dict):
            backoff = {name: value for name, value in backoff.items() if value is not None}
        if delay_ms is not None:
            run_at = due_at(now, delay_ms, None)
        retry = retry_override(attempts, backoff)
        return draft(self._policy, now, name, payload, job_id=id, retry=retry, run_at_ms=run_at)

    def call(self, queue: str, task: Task, mark: Mark, items: Sequence[Any]) -> Call[int]:
        """Return what adds *items*, unless *mark* says they are there."""
        return sink_ops.add(Keys(queue), self._policy, task.query, mark, items)
