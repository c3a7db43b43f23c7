"""Writers for tests, called as Spark calls them but without it."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tambomq.spark.formats.chasqui import sink as chasqui_sink
from tambomq.spark.formats.gomq import sink as gomq_sink
from tambomq.spark.formats.rsmq import sink as rsmq_sink
from tambomq.spark.formats.tambo import sink as tambo_sink
from tambomq.spark.sink.writer import BatchWriter, Sink, StreamWriter, WriteResult

SINKS = {
    "rsmq": rsmq_sink.sink,
    "chasqui": chasqui_sink.sink,
    "gomq": gomq_sink.sink,
    "tambo": tambo_sink.sink,
}
NEEDED: dict[str, dict[str, str]] = {"tambo": {"protocol": "rsmq"}}
"""The options that every format requires for a write."""
BODY = {"rsmq": "body", "chasqui": "payload", "gomq": "payload", "tambo": "body"}


class Context:
    """The identity of a task."""

    def __init__(self, partition: int = 0, query: str = "query", batch: int = 0) -> None:
        self._partition = partition
        self.known = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}

    def __call__(self) -> Context:
        return self

    def partitionId(self) -> int:  # noqa: N802  (Spark's name)
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  (Spark's name)
        return self.known.get(name)


def table(**columns: Any) -> pa.Table:
    """Rows; a column is values, or values with their type."""
    return pa.table(
        {name: pa.array(*v) if isinstance(v, tuple) else v for name, v in columns.items()}
    )


def sink(source: str, rows: pa.Table, **options: str) -> Sink:
    """The sink for such rows, as it is after its way to a worker."""
    made = SINKS[source](
        NEEDED.get(source, {}) | options, from_arrow_schema(rows.schema), overwrite=False
    )
    sent: Sink = pickle.loads(pickle.dumps(made))  # noqa: S301  (our own bytes)
    return sent


def batches(rows: pa.Table, size: int) -> Sequence[pa.RecordBatch]:
    found: Sequence[pa.RecordBatch] = rows.to_batches(max_chunksize=size)
    return found


def stream(
    source: str,
    rows: pa.Table,
    context: Context | None = None,
    *,
    handed: Iterable[pa.RecordBatch] | None = None,
    **options: Any,
) -> WriteResult:
    """Write *rows* as one task of a streaming query; *handed* is how they come, if it matters."""
    writer = StreamWriter(sink(source, rows, **options), context or Context())
    return writer.write(iter(batches(rows, 10_000) if handed is None else handed))


def batch(
    source: str, rows: pa.Table, context: Context | None = None, **options: Any
) -> tuple[BatchWriter, WriteResult]:
    """Write *rows* as one task of a batch write."""
    writer = BatchWriter(sink(source, rows, **options), context or Context())
    return writer, writer.write(iter(batches(rows, 10_000)))
