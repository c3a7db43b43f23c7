"""The format ``gomq``: GOMQ's main and dedicated queues, and its subscriptions, as tables."""

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

from tambomq.gomq.model import Options
from tambomq.spark import gomq_sink, leased, payload
from tambomq.spark.batch import batch_reader
from tambomq.spark.gomq_tables import Dedicated, Main, Subscriptions
from tambomq.spark.leased import LeasedReader
from tambomq.spark.leased_gomq import LeasedKey
from tambomq.spark.options import Given
from tambomq.spark.payload import Payload
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import BatchWriter, StreamWriter
from tambomq.spark.table import Table

NAME: Final = "gomq"
TABLES: Final[dict[str, Callable[[], Table]]] = {
    "main": Main,
    "dedicated": Dedicated,
    "subscriptions": Subscriptions,
}
OPTIONS: Final = (
    "url",
    "queue",
    "table",
    "partitions",
    "pushdown",
    *leased.OPTIONS,
    *payload.OPTIONS,
)


class GomqSource(DataSource):
    """Reads tables of GOMQ, ``table`` is one of `TABLES`; publishes. ``queue`` names keys."""

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
        """Return what hands out the payloads of a key under a lease."""
        with told_in_one_line():
            given = self._given()
            decode = self._payload(given).bound(schema).apply
            return LeasedReader.given(given, self._leased(given), decode)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what publishes rows, once each."""
        with told_in_one_line():
            sink = gomq_sink.sink(self.options, schema, overwrite=overwrite)
            return BatchWriter(sink.checked())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return what publishes the rows of each batch, once each."""
        with told_in_one_line():
            return StreamWriter(gomq_sink.sink(self.options, schema, overwrite=overwrite))

    def _given(self) -> Given:
        return Given(NAME, self.options, OPTIONS)

    def _payload(self, given: Given) -> Payload:
        return Payload.given(given, "payload")

    def _leased(self, given: Given) -> LeasedKey:  # noqa: ARG002  (as the others)
        return LeasedKey(Options())

    def _table(self, given: Given) -> Table:
        return TABLES[given.one_of("table", tuple(TABLES), "main")]()
