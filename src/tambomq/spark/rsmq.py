"""The format ``rsmq``: RSMQ's queues and messages as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark import leased, payload, rsmq_sink
from tambomq.spark.batch import batch_reader
from tambomq.spark.leased import LeasedReader
from tambomq.spark.leased_rsmq import LeasedMessages
from tambomq.spark.options import Given
from tambomq.spark.payload import Payload
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.rsmq_tables import Messages, Queues
from tambomq.spark.sink import BatchWriter, StreamWriter
from tambomq.spark.table import Table

NAME: Final = "rsmq"
TABLES: Final[dict[str, Callable[[Keys], Table]]] = {"messages": Messages, "queues": Queues}
OPTIONS: Final = (
    "url",
    "ns",
    "queue",
    "table",
    "partitions",
    "pushdown",
    "deadQueue",
    *leased.OPTIONS,
    *payload.OPTIONS,
)


class RsmqSource(DataSource):
    """Reads tables of RSMQ, ``table`` is one of `TABLES`; appends to its queues."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` calls it."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the table that is asked for."""
        with told_in_one_line():
            given = self._given()
            # A stream has a lease, a table has none; Spark does not say which is wanted.
            read = self._leased(given) if given.text("lease", None) else self._table(given)
            return self._payload(given).columns(read.columns).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the table once."""
        with told_in_one_line():
            given = self._given()
            if lease := given.text("lease", None):
                raise given.wrong("lease", "left out where nothing is streamed", lease)
            decode = self._payload(given).bound(schema).apply
            return batch_reader(given, self._table(given), decode)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return what hands out messages under a lease."""
        with told_in_one_line():
            given = self._given()
            decode = self._payload(given).bound(schema).apply
            return LeasedReader.given(given, self._leased(given), decode)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what appends rows, once each."""
        with told_in_one_line():
            sink = rsmq_sink.sink(self.options, schema, overwrite=overwrite)
            return BatchWriter(sink.checked())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return what appends the rows of each batch, once each."""
        with told_in_one_line():
            return StreamWriter(rsmq_sink.sink(self.options, schema, overwrite=overwrite))

    def _given(self) -> Given:
        return Given(NAME, self.options, OPTIONS)

    def _payload(self, given: Given) -> Payload:
        return Payload.given(given, "body")

    def _leased(self, given: Given) -> LeasedMessages:
        return LeasedMessages(_keys(given), given.text("deadQueue", None) or "")

    def _table(self, given: Given) -> Table:
        return TABLES[given.one_of("table", tuple(TABLES), "messages")](_keys(given))


def _keys(given: Given) -> Keys:
    return Keys(given.text("ns", NAMESPACE))
