"""The Spark data source of the pipeline: all streams of all protocols, with the columns of bronze.

It is one source instead of one for each table, so that Spark plans it in one process, and a
checkpoint stays valid when other queues are chosen. A stream is named
``<protocol>:<source>:<queue>``, where the source is ``events`` or ``dlq`` (ChasquiMQ) or
``journal`` (all protocols).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from tambomq.errors import SettingsError
from tambomq.journal.keys import PROTOCOLS
from tambomq.pipeline.lake.tables import TAILED
from tambomq.spark.core.columns import TIME, Columns, constant
from tambomq.spark.core.options import QueueSelector, SourceOptions
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.core.table import ColumnBounds, Range
from tambomq.spark.formats.chasqui import streams as chasqui_tables
from tambomq.spark.formats.chasqui.streams import StreamTable
from tambomq.spark.formats.tambo.tables import JournalTable
from tambomq.spark.tail import options as tail_options
from tambomq.spark.tail.options import TailOptions
from tambomq.spark.tail.reader import TailReader, TailTable
from tambomq.store.sync import Store

NAME: Final = "tambo_pipeline"
OPTIONS: Final = ("url", "queue", "partitions", *tail_options.OPTIONS)
EVENTS, DLQ, JOURNAL = "events", "dlq", "journal"
_SOURCES: Final = {"chasqui": (EVENTS, DLQ, JOURNAL)}
_ALL: Final = "*"

_json = msgspec.json.Encoder().encode


class Stream(NamedTuple):
    """A Redis stream that is followed."""

    protocol: str
    source: str
    queue: str

    @classmethod
    def parse(cls, name: str) -> Stream:
        """Return the stream that is called *name*."""
        return cls(*name.split(":", 2))

    def __str__(self) -> str:
        return ":".join(self)


def select_queues(patterns: Sequence[str]) -> QueueSelector:
    """Return the selector for *patterns* like ``chasqui:*`` or ``rsmq:orders``; none select all.

    Raises `SettingsError` for a protocol that does not exist.
    """
    found: list[str] = []
    for pattern in patterns or (_ALL,):
        protocol, colon, queue = pattern.partition(":")
        if pattern == _ALL:
            protocols: Sequence[str] = PROTOCOLS
            queue = _ALL
        elif not colon or protocol not in PROTOCOLS or not queue:
            known = ", ".join(f"{each}:NAME" for each in PROTOCOLS)
            raise SettingsError(f"{pattern!r} can match no queue: write {known}, or 'chasqui:*'")
        else:
            protocols = (protocol,)
        for each in protocols:
            found += (f"{each}:{source}:{queue}" for source in _SOURCES.get(each, (JOURNAL,)))
    return QueueSelector(tuple(dict.fromkeys(found)))


@cache
def _table(protocol: str, source: str) -> TailTable:
    return JournalTable(protocol) if source == JOURNAL else StreamTable(source)


class FollowedStreams:
    """All streams of a selector as one table; holds no connection, so it can be pickled."""

    def __init__(self, wanted: QueueSelector) -> None:
        self._kinds = sorted({tuple(each.split(":", 2)[:2]) for each in wanted.patterns})

    @property
    def columns(self) -> Columns:
        """Those of bronze without ``date``."""
        return TAILED

    def names(self, store: Store) -> Iterator[str]:
        """Yield the names of all streams of the selected protocols."""
        for protocol, source in self._kinds:
            if source == JOURNAL:
                queues: Iterator[str] = JournalTable(protocol).names(store)
                yield from (f"{protocol}:{source}:{queue}" for queue in queues)
        if ("chasqui", EVENTS) in self._kinds:
            for queue in chasqui_tables.names(store):
                yield from (f"chasqui:{source}:{queue}" for source in (EVENTS, DLQ))

    def key(self, queue: str) -> str:
        """Return the Redis key of the stream *queue*."""
        stream = Stream.parse(queue)
        return _table(stream.protocol, stream.source).key(stream.queue)

    def cut(self, store: Store, queue: str, bounds: ColumnBounds, pieces: int) -> list[Range]:
        """Return ranges of about the same size."""
        stream = Stream.parse(queue)
        found = _table(stream.protocol, stream.source).cut(store, stream.queue, bounds, pieces)
        return [Range(queue, each.low, each.high) for each in found]

    def read(self, store: Store, part: Range, bounds: ColumnBounds) -> Iterator[pa.RecordBatch]:
        """Yield entries, the oldest first."""
        stream = Stream.parse(part.queue)
        table = _table(stream.protocol, stream.source)
        convert = {EVENTS: _events, DLQ: _dead_letters, JOURNAL: _journal}[stream.source]
        for batch in table.read(store, Range(stream.queue, part.low, part.high), bounds):
            found = {name: batch.column(name) for name in batch.schema.names}
            size = batch.num_rows
            values = {column.name: constant(None, size) for column in TAILED}
            values |= {name: each for name, each in found.items() if name in values}
            values |= {
                "protocol": constant(stream.protocol, size),
                "queue": constant(stream.queue, size),
                "source": constant(stream.source, size),
                **convert(found, size),
            }
            yield TAILED.batch(**values)


def _events(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
    extra = ("count", "wait_ms", "percent")
    others: Any = found["others"]
    if any(found[name].null_count < size for name in extra):
        columns = [found[name].to_pylist() for name in extra]
        rows = zip(others.to_pylist(), *columns, strict=True)
        others = [_merged(known, zip(extra, values, strict=True)) for known, *values in rows]
    return {"recorded_at": found["recorded_at"], "at": found["ts"], "others": others}


def _dead_letters(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
    extra = ("source_id", "max_attempts", "backoff", "error", "error_type", "traceback")
    columns = [found[name].to_pylist() for name in extra]
    created = found["created_at"].cast(TIME).cast(pa.int64()).to_pylist()
    names = (*extra, "created_ms")
    rows = zip(*columns, (each and each // 1000 for each in created), strict=True)
    return {
        "entry_id": found["dlq_id"],
        "recorded_at": found["died_at"],
        "at": found["died_at"],
        "event": constant(DLQ, size),
        # A dead letter that is not an envelope has no payload: keep its bytes.
        "body": pc.coalesce(found["payload"], found["raw"]),
        "others": [_merged(None, zip(names, values, strict=True)) for values in rows],
    }


def _journal(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
    known = {column.name for column in TAILED}
    extra = [n for n, each in found.items() if n not in known and each.null_count < size]
    if not extra:
        return {}
    rows = zip(*(found[name].to_pylist() for name in extra), strict=True)
    return {"others": [_merged(None, zip(extra, values, strict=True)) for values in rows]}


def _merged(known: str | None, more: Any) -> bytes | None:
    """Return the JSON object *known* with the pairs of *more* that are not null, if any."""
    found = msgspec.json.decode(known) if known else {}
    found |= {name: value for name, value in more if value is not None}
    return _json(found) if found else None


class PipelineSource(DataSource):
    """Follows the streams that the option ``queue`` names: a JSON list of names or patterns."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return TAILED.ddl

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  (Spark's name and signature)
        """Return the reader of the streams."""
        with one_line_errors():
            given = SourceOptions(NAME, self.options, OPTIONS)
            wanted = given.queue_selector()
            how = TailOptions.from_options(given)
            return TailReader(FollowedStreams(wanted), given.redis_target(), wanted, how)
