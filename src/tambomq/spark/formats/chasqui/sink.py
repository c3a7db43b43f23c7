"""Sink that writes rows as ChasquiMQ jobs, stored as `Queue.add` stores them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from tambomq.chasqui.bulk import sink as sink_ops
from tambomq.chasqui.job import retry_override
from tambomq.chasqui.keys import Keys, check_name, check_queue
from tambomq.chasqui.ops.add import MAX_STREAM_LEN, Draft, Policy, draft
from tambomq.chasqui.producer.add_options import due_at
from tambomq.chasqui.wire.envelope import DIALECTS, encode_all_fresh
from tambomq.chasqui.wire.msgpack import UNREADABLE, UNWRITABLE, encode, encode_payload
from tambomq.clock import now_ms
from tambomq.errors import InvalidFormat, LocalProtocolError, SettingsError
from tambomq.ids import ulids
from tambomq.spark.core import schemas
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.sink.fence import ChunkToken, Task
from tambomq.spark.sink.journal import JOURNAL, journal_of
from tambomq.spark.sink.rows import Field, Layout, Rows, as_ms, fields, plain
from tambomq.spark.sink.writer import COMMON, Sink, sink_of
from tambomq.store.call import Call
from tambomq.store.sync import Store

SOURCE: Final = "chasqui"
OPTIONS: Final = (*COMMON, *JOURNAL, "name", "maxStreamLen", "overflow", "dialect")
_USUAL: Final = Policy()
_MAX_DELAYED: Final = 400
"""Rows per chunk with delays: a delayed job takes Redis as long as three others."""
_PLAIN: Final = frozenset(("payload", "data", "name", "queue"))


def as_packed(column: pa.Array) -> list[bytes | None]:
    """Return values as MessagePack; bytes already are, and are returned unchanged."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return plain(column)
    # Converting maps to dicts makes all other types thirty times slower.
    has_maps = "map<" in str(column.type)
    values = column.to_pylist(maps_as_pydicts="strict") if has_maps else column.to_pylist()
    if not column.null_count:
        # Calling `encode_payload` for each takes twice as long; it tells what is wrong with one.
        with suppress(*UNWRITABLE):
            return list(map(encode, values))
    return [None if value is None else encode_payload(value) for value in values]


FIELDS: Final = fields(schemas.CHASQUI_WRITTEN, payload=as_packed, data=as_packed, run_at=as_ms)


def sink(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Sink:
    """Return the sink for the options of a write."""
    with one_line_errors():
        made = sink_of(
            _target, SourceOptions(SOURCE, options, OPTIONS), schema, overwrite=overwrite
        )
        if {"delay_ms", "run_at"} <= made.layout.indexes.keys():
            fault = "these rows cannot be written: give only one of the columns delay_ms or run_at"
            raise SettingsError(f"format {SOURCE!r}: {fault}")
        if made.layout.indexes.keys() & {"delay_ms", "run_at"}:
            return replace(made, layout=replace(made.layout, max_rows=_MAX_DELAYED))
        return made


def _target(options: SourceOptions) -> ChasquiTarget:
    queue = options.text("queue", None)
    policy = Policy(
        max_stream_len=options.number("maxStreamLen", MAX_STREAM_LEN),
        overflow=options.one_of("overflow", ("refuse", "trim"), "refuse"),
        dialect=options.one_of("dialect", DIALECTS, "auto"),
        journal=journal_of(options, SOURCE),
    )
    name = check_name(options.text("name", None) or "")
    return ChasquiTarget(None if queue is None else check_queue(queue), policy, name)


@dataclass(frozen=True, slots=True)
class ChasquiTarget:
    """The queue and policy by which jobs are added."""

    queue: str | None = None
    policy: Policy = _USUAL
    name: str = ""
    source: str = SOURCE
    fields: tuple[Field, ...] = FIELDS
    bodies: tuple[str, ...] = ("payload", "data")
    queue_column: str = "queue"

    def packer(self, store: Store, layout: Layout) -> ChasquiPacker:  # noqa: ARG002  (needs no reads)
        """Return the packer for one task."""
        return ChasquiPacker(self.policy, self.name, layout)

    def fence(self, queue: str, query: str) -> str:
        """Return the key of the fence."""
        return Keys(queue).fence(query)


class ChasquiPacker:
    """Turns rows into jobs, and jobs into calls that add them."""

    def __init__(self, policy: Policy, name: str, layout: Layout) -> None:
        self._policy, self._name, self._body = policy, name, layout.body
        self._is_plain = layout.indexes.keys() <= _PLAIN
        self._has_names = "name" in layout.indexes
        # Only payloads that were not packed here have to be validated.
        self._check = msgspec.msgpack.Decoder(msgspec.Raw).decode
        self._is_foreign = layout.kinds[layout.body] == "binary"

    def refusal(self, queue: str) -> str | None:
        """Return why nothing can be written to *queue*; `None` if it can."""
        try:
            check_queue(queue)
        except InvalidFormat as fault:
            return str(fault)
        return None

    def pack(self, queue: str, rows: Rows) -> tuple[list[Any], dict[int, str]]:  # noqa: ARG002  (same for all queues)
        """Return the job of each row, and by row index why rows cannot be written."""
        now, payloads = now_ms(), rows.columns[self._body]
        faults = self._wrong_payloads(payloads)
        if not self._is_plain:
            return self._drafts(now, payloads, rows, faults), faults
        ids = ulids(now, len(rows))
        items: list[Any] = encode_all_fresh(ids, payloads, now)
        if self._has_names:
            names = self._names(rows)
            items, faults = list(zip(items, names, strict=True)), _wrong_names(names) | faults
        return items, faults

    def _names(self, rows: Rows) -> list[str]:
        return [self._name if name is None else name for name in rows.get("name")]

    def _wrong_payloads(self, payloads: Sequence[Any]) -> dict[int, str]:
        """Return the faults of payloads by index; the common case, without any, is fast."""
        with suppress(*UNREADABLE, TypeError):
            if self._is_foreign:
                deque(map(self._check, payloads), 0)
                return {}
        if not self._is_foreign and None not in payloads:
            return {}
        faults = {}
        for index, payload in enumerate(payloads):
            if payload is None:
                faults[index] = f"{self._body} is null"
            elif self._is_foreign:
                try:
                    self._check(payload)
                except UNREADABLE as fault:
                    faults[index] = f"{self._body} is no MessagePack: {fault}"
        return faults

    def _drafts(
        self, now: int, payloads: Sequence[bytes], rows: Rows, faults: dict[int, str]
    ) -> list[Draft | None]:
        """Return jobs with options; add to *faults* why some rows are no valid job."""
        others = [rows.get(each) for each in ("id", "delay_ms", "run_at", "attempts", "backoff")]
        found: list[Draft | None] = []
        for index, row in enumerate(zip(self._names(rows), payloads, *others, strict=True)):
            try:
                found.append(self._draft(now, *row))
            except LocalProtocolError as fault:
                faults.setdefault(index, str(fault))
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

    def call(
        self, queue: str, task: Task, chunk_token: ChunkToken, items: Sequence[Any]
    ) -> Call[int]:
        """Return the call that adds *items*, unless *chunk_token* is already stored."""
        keys = Keys(queue)
        if not self._is_plain:
            return sink_ops.add(keys, self._policy, task.query, chunk_token, items)
        bodies, names = zip(*items, strict=True) if self._has_names else (items, (self._name,))
        return sink_ops.add_fresh(
            keys, self._policy, task.query, chunk_token, now_ms(), bodies, names
        )


def _wrong_names(names: Sequence[str]) -> dict[int, str]:
    # Check each distinct name once: most rows share theirs.
    wrong = {}
    for name in set(names):
        try:
            check_name(name)
        except InvalidFormat as fault:
            wrong[name] = str(fault)
    return (
        {index: wrong[name] for index, name in enumerate(names) if name in wrong} if wrong else {}
    )
