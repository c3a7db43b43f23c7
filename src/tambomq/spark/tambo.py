"""The format ``tambo``: the journals of queues, to be read and followed."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tambomq.journal.keys import PROTOCOLS
from tambomq.spark import payload, tail
from tambomq.spark.batch import BatchReader
from tambomq.spark.options import Given
from tambomq.spark.payload import Payload
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.tambo_tables import Journal

NAME: Final = "tambo"
TABLES: Final = ("journal",)
OPTIONS: Final = (
    *("url", "protocol", "queue", "table", "partitions"),
    *tail.OPTIONS,
    *payload.OPTIONS,
)


class TamboSource(DataSource):
    """Reads and follows the journals of one ``protocol``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` calls it."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the journal."""
        with told_in_one_line():
            given = self._given()
            return self._payload(given).columns(self._table(given).columns).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads journals once."""
        with told_in_one_line():
            given = self._given()
            decode = self._payload(given).bound(schema).apply
            place, wanted = given.place(), given.wanted()
            return BatchReader(self._table(given), place, wanted, given.parts(), decode)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return what follows journals."""
        with told_in_one_line():
            given = self._given()
            decode = self._payload(given).bound(schema).apply
            return tail.tail_reader(given, self._table(given), decode)

    def _given(self) -> Given:
        return Given(NAME, self.options, OPTIONS)

    def _payload(self, given: Given) -> Payload:
        return Payload.given(given, "body")

    def _table(self, given: Given) -> Journal:
        given.one_of("table", TABLES, "journal")
        protocol = given.one_of("protocol", PROTOCOLS, given.text("protocol"))
        return Journal(protocol)
