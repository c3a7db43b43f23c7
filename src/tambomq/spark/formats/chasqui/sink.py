"""Rows as ChasquiMQ jobs, as `Queue.add` would have added them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from tambomq.chasqui import sink_ops
from tambomq.chasqui.add_options import due_at
from tambomq.chasqui.job import retry_override
from tambomq.chasqui.keys import Keys, check_name, check_queue
from tambomq.chasqui.ops import MAX_STREAM_LEN, Draft, Policy, draft
from tambomq.chasqui.packing import UNREADABLE, encode_payload
from tambomq.chasqui.wire import DIALECTS, encode_fresh
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, LocalProtocolError, SettingsError
from tambomq.ids import ulids
from tambomq.spark import schemas
from tambomq.spark.fence import Mark, Task
from tambomq.spark.options import Given
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import COMMON, Sink, sink_of
from tambomq.spark.sink_journal import JOURNAL, journal_of
from tambomq.spark.sink_rows import Field, Layout, Rows, as_ms, fields, plain
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "chasqui"
OPTIONS: Final = (*COMMON, *JOURNAL, "name", "maxStreamLen", "overflow", "dialect")
_USUAL: Final = Policy()
_MOST_DELAYED: Final = 400
"""A job that is delayed takes the server as long as three that are not."""
_PLAIN: Final = frozenset(("payload", "data", "name", "queue"))


def as_packed(column: pa.Array) -> list[bytes | None]:
    """Return values as MessagePack; bytes are that already."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return plain(column)
    # With maps as dicts, the others take thirty times as long.
    has_maps = "map<" in str(column.type)
    values = column.to_pylist(maps_as_pydicts="strict") if has_maps else column.to_pylist()
    return [None if value is None else encode_payload(value) for value in values]


FIELDS: Final = fields(schemas.CHASQUI_WRITTEN, payload=as_packed, data=as_packed, run_at=as_ms)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink that the options of a write come to."""
    with told_in_one_line():
        made = sink_of(_target, Given(SOURCE, options, OPTIONS), schema, overwrite=overwrite)
        if {"delay_ms", "run_at"} <= made.layout.places.keys():
            fault = "these rows cannot be written: give only one of the columns delay_ms or run_at"
            raise SettingsError(f"format {SOURCE!r}: {fault}")
        if made.layout.places.keys() & {"delay_ms", "run_at"}:
            return replace(made, layout=replace(made.layout, most_rows=_MOST_DELAYED))
        return made


def _target(given: Given) -> ChasquiTarget:
    queue = given.text("queue", None)
    policy = Policy(
        max_stream_len=given.number("maxStreamLen", MAX_STREAM_LEN),
        overflow=given.one_of("overflow", ("refuse", "trim"), "refuse"),
        dialect=given.one_of("dialect", DIALECTS, "auto"),
        journal=journal_of(given),
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
        self._has_names = "name" in layout.places
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
        now, payloads = now_ms(), rows.columns[self._body]
        faults = self._wrong_payloads(payloads)
        if not self._is_plain:
            return self._drafts(now, payloads, rows, faults), faults
        ids = ulids(now, len(rows))
        items: list[Any] = [encode_fresh(id, p, now) for id, p in zip(ids, payloads, strict=True)]
        if self._has_names:
            names = self._names(rows)
            items, faults = list(zip(items, names, strict=True)), _wrong_names(names) | faults
        return items, faults

    def _names(self, rows: Rows) -> list[str]:
        return [self._name if name is None else name for name in rows.get("name")]

    def _wrong_payloads(self, payloads: Sequence[Any]) -> dict[int, str]:
        """Return by its place what is wrong with a payload. Nearly always nothing is."""
        with suppress(*UNREADABLE, TypeError):
            if self._is_foreign:
                deque(map(self._check, payloads), 0)
                return {}
        faults = {}
        for place, payload in enumerate(payloads):
            if payload is None:
                faults[place] = f"{self._body} is null"
            elif self._is_foreign:
                try:
                    self._check(payload)
                except UNREADABLE as fault:
                    faults[place] = f"{self._body} is no MessagePack: {fault}"
        return faults

    def _drafts(
        self, now: int, payloads: Sequence[bytes], rows: Rows, faults: dict[int, str]
    ) -> list[Draft | None]:
        """Return jobs of more than a name and a payload; add to *faults* why some are none."""
        others = [rows.get(each) for each in ("id", "delay_ms", "run_at", "attempts", "backoff")]
        found: list[Draft | None] = []
        for place, row in enumerate(zip(self._names(rows), payloads, *others, strict=True)):
            try:
                found.append(self._draft(now, *row))
            except LocalProtocolError as fault:
                faults.setdefault(place, str(fault))
                found.append(None)
        return found

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
        keys = Keys(queue)
        if not self._is_plain:
            return sink_ops.add(keys, self._policy, task.query, mark, items)
        bodies, names = zip(*items, strict=True) if self._has_names else (items, (self._name,))
        return sink_ops.add_fresh(keys, self._policy, task.query, mark, now_ms(), bodies, names)


def _wrong_names(names: Sequence[str]) -> dict[int, str]:
    # Most rows have the name of another.
    wrong = {}
    for name in set(names):
        try:
            check_name(name)
        except InvalidFormat as fault:
            wrong[name] = str(fault)
    return (
        {place: wrong[name] for place, name in enumerate(names) if name in wrong} if wrong else {}
    )
