"""The format ``chasqui``: ChasquiMQ's queues as tables."""

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

from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.lease_ops import Group
from tambomq.spark import chasqui_sink, leased, payload, tail_options
from tambomq.spark.batch import batch_reader
from tambomq.spark.chasqui_sets import Results, Scored
from tambomq.spark.chasqui_tables import Entries, PendingEntries
from tambomq.spark.leased import LeasedReader
from tambomq.spark.leased_chasqui import LeasedJobs
from tambomq.spark.options import Given
from tambomq.spark.payload import Payload
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.sink import BatchWriter, StreamWriter
from tambomq.spark.table import Table
from tambomq.spark.tail import tail_reader

NAME: Final = "chasqui"
TABLES: Final[dict[str, Callable[[bool, str], Table]]] = {
    "jobs": lambda show, _: Entries("jobs", show),
    "delayed": lambda show, _: Scored("delayed", show),
    "dlq": lambda show, _: Entries("dlq", show),
    "events": lambda show, _: Entries("events", show),
    "repeat": lambda show, _: Scored("repeat", show),
    "results": lambda _, __: Results(),
    "pending": lambda show, group: PendingEntries(group, show),
}
TAILS: Final = ("events", "dlq")
"""Those that can be followed."""
OPTIONS: Final = (
    *("url", "queue", "table", "partitions", "pushdown", "group", "damaged"),
    *dict.fromkeys((*tail_options.OPTIONS, *leased.OPTIONS)),
    *payload.OPTIONS,
)


class ChasquiSource(DataSource):
    """Reads tables of ChasquiMQ and adds jobs; ``table`` is one of `TABLES`.

    ``damaged`` says whether rows that cannot be read are to ``show`` with an error, or to ``skip``.
    """

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
        """Return what follows the table, or hands out jobs under a lease."""
        with told_in_one_line():
            given = self._given()
            table, kind = self._table(given), given.one_of("table", tuple(TABLES), "jobs")
            if kind not in ("jobs", *TAILS) or not isinstance(table, Entries):
                raise given.wrong("table", f"jobs, {' or '.join(TAILS)} to be streamed", kind)
            decode = self._payload(given).bound(schema).apply
            if kind == "jobs":
                return LeasedReader.given(given, self._leased(given), decode)
            return tail_reader(given, table, decode)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what adds rows as jobs."""
        return BatchWriter(chasqui_sink.sink(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return what adds the rows of a stream as jobs."""
        return StreamWriter(chasqui_sink.sink(self.options, schema, overwrite=overwrite))

    def _given(self) -> Given:
        return Given(NAME, self.options, OPTIONS)

    def _payload(self, given: Given) -> Payload:
        return Payload.given(given, "payload")

    def _leased(self, given: Given) -> LeasedJobs:
        return LeasedJobs(Group(given.text("group", GROUP)))

    def _table(self, given: Given) -> Table:
        make = TABLES[given.one_of("table", tuple(TABLES), "jobs")]
        show = given.one_of("damaged", ("show", "skip"), "show") == "show"
        return make(show, given.text("group", GROUP))
