"""All that can be followed, as one stream with the columns of bronze.

One source instead of one for each table: Spark plans it in one process, and a query's checkpoint
stays good when other queues are chosen. What is followed is named ``<protocol>:<source>:<queue>``.
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
from tambomq.pipeline.tables import TAILED
from tambomq.spark import chasqui_tables, tail_options
from tambomq.spark.chasqui_tables import Entries
from tambomq.spark.columns import TIME, Columns, constant
from tambomq.spark.options import Given, Wanted
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.table import Bounds, Range
from tambomq.spark.tail import TailReader, TailTable
from tambomq.spark.tail_options import Following
from tambomq.spark.tambo_tables import Journal
from tambomq.store.sync import Store

NAME: Final = "tambo_pipeline"
OPTIONS: Final = ("url", "queue", "partitions", *tail_options.OPTIONS)
EVENTS, DLQ, JOURNAL = "events", "dlq", "journal"
_SOURCES: Final = {"chasqui": (EVENTS, DLQ, JOURNAL)}
_ALL: Final = "*"

_json = msgspec.json.Encoder().encode


class Stream(NamedTuple):
    """One thing that is followed."""

    protocol: str
    source: str
    queue: str

    @classmethod
    def named(cls, name: str) -> Stream:
        """Return what *name* means."""
        return cls(*name.split(":", 2))

    def __str__(self) -> str:
        return ":".join(self)


def chosen(patterns: Sequence[str]) -> Wanted:
    """Return what *patterns* like ``chasqui:*`` or ``rsmq:orders`` mean; all, if there are none.

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
            raise SettingsError(f"no queue is called {pattern!r}: say {known}, or 'chasqui:*'")
        else:
            protocols = (protocol,)
        for each in protocols:
            found += (f"{each}:{source}:{queue}" for source in _SOURCES.get(each, (JOURNAL,)))
    return Wanted(tuple(dict.fromkeys(found)))


@cache
def _table(protocol: str, source: str) -> TailTable:
    return Journal(protocol) if source == JOURNAL else Entries(source)


class Followed:
    """All streams as one table; holds nothing, so that it can travel."""

    def __init__(self, wanted: Wanted) -> None:
        self._kinds = sorted({tuple(each.split(":", 2)[:2]) for each in wanted.patterns})

    @property
    def columns(self) -> Columns:
        """As bronze has them, but the day."""
        return TAILED

    def names(self, store: Store) -> Iterator[str]:
        """Yield all streams of the protocols that are wanted."""
        for protocol, source in self._kinds:
            if source == JOURNAL:
                queues: Iterator[str] = Journal(protocol).names(store)
                yield from (f"{protocol}:{source}:{queue}" for queue in queues)
        if ("chasqui", EVENTS) in self._kinds:
            for queue in chasqui_tables.names(store):
                yield from (f"chasqui:{source}:{queue}" for source in (EVENTS, DLQ))

    def key(self, queue: str) -> str:
        """Return the key of the stream."""
        stream = Stream.named(queue)
        return _table(stream.protocol, stream.source).key(stream.queue)

    def cut(self, store: Store, queue: str, bounds: Bounds, pieces: int) -> list[Range]:
        """Return ranges of about the same size."""
        stream = Stream.named(queue)
        found = _table(stream.protocol, stream.source).cut(store, stream.queue, bounds, pieces)
        return [Range(queue, each.low, each.high) for each in found]

    def read(self, store: Store, part: Range, bounds: Bounds) -> Iterator[pa.RecordBatch]:
        """Yield entries, the oldest first."""
        stream = Stream.named(part.queue)
        table = _table(stream.protocol, stream.source)
        shape = {EVENTS: _events, DLQ: _letters, JOURNAL: _journal}[stream.source]
        for batch in table.read(store, Range(stream.queue, part.low, part.high), bounds):
            found = {name: batch.column(name) for name in batch.schema.names}
            size = batch.num_rows
            values = {column.name: constant(None, size) for column in TAILED}
            values |= {name: each for name, each in found.items() if name in values}
            values |= {
                "protocol": constant(stream.protocol, size),
                "queue": constant(stream.queue, size),
                "source": constant(stream.source, size),
                **shape(found, size),
            }
            yield TAILED.batch(**values)


def _events(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
    extra = ("count", "wait_ms", "percent")
    others: Any = found["others"]
    if any(found[name].null_count < size for name in extra):
        columns = [found[name].to_pylist() for name in extra]
        rows = zip(others.to_pylist(), *columns, strict=True)
        others = [_with(told, zip(extra, values, strict=True)) for told, *values in rows]
    return {"recorded_at": found["told_at"], "at": found["ts"], "others": others}


def _letters(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
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
        # What is no envelope has no payload, but bytes that somebody may want to see.
        "body": pc.coalesce(found["payload"], found["raw"]),
        "others": [_with(None, zip(names, values, strict=True)) for values in rows],
    }


def _journal(found: dict[str, pa.Array], size: int) -> dict[str, Any]:
    known = {column.name for column in TAILED}
    extra = [n for n, each in found.items() if n not in known and each.null_count < size]
    if not extra:
        return {}
    rows = zip(*(found[name].to_pylist() for name in extra), strict=True)
    return {"others": [_with(None, zip(extra, values, strict=True)) for values in rows]}


def _with(told: str | None, more: Any) -> bytes | None:
    """Return *told*, a JSON object or nothing, with *more* that is not null."""
    found = msgspec.json.decode(told) if told else {}
    found |= {name: value for name, value in more if value is not None}
    return _json(found) if found else None


class PipelineSource(DataSource):
    """Follows all that is ``queue``: names as `Stream` has them, or patterns of such."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` calls it."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return TAILED.ddl

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  (Spark's name and signature)
        """Return what follows."""
        with told_in_one_line():
            given = Given(NAME, self.options, OPTIONS)
            wanted = given.wanted()
            how = Following.given(given)
            return TailReader(Followed(wanted), given.place(), wanted, how)
