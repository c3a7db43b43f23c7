"""What Spark asks of a format, answered in the same way by all of ours.

A format says which options, tables and bytes it has, and makes tables and sinks out of options. It
keeps plain values only, since Spark sends it to other processes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tambomq.errors import SettingsError, TamboError
from tambomq.spark.batch import Decode, batch_reader
from tambomq.spark.columns import Columns
from tambomq.spark.lease import Leased
from tambomq.spark.leased import LeasedReader
from tambomq.spark.options import Given
from tambomq.spark.payload import Payload, arrow_type
from tambomq.spark.plain import told_in_one_line
from tambomq.spark.refusal import Refusal
from tambomq.spark.sink import BatchWriter, Sink, StreamWriter
from tambomq.spark.table import Table
from tambomq.spark.tail import TailTable, tail_reader


class QueueSource(DataSource):
    """A format of ours: its tables are read, followed or leased; rows are appended to its queues.

    Whatever is wrong is told in one line.
    """

    format: ClassVar[str]
    """What Spark calls it."""
    known: ClassVar[tuple[str, ...]]
    """The options of a read."""
    tables: ClassVar[tuple[str, ...]]
    """What ``table`` may say. The first is meant where it is left out, and can be leased."""
    body: ClassVar[str] = "payload"
    """The column that ``payload`` is about."""
    sink: ClassVar[Callable[..., Sink]]
    """Returns where rows go, of the options, the schema of the rows, and *overwrite*."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format`` calls it."""
        return cls.format

    def schema(self) -> str:
        """Return the columns of the table that is asked for."""
        with told_in_one_line():
            given = self._given()
            # A stream has a lease, a table has none; Spark does not say which is wanted.
            read = self._leased(given) if self._has_lease(given) else self._table(given)
            return self._payload(given).columns(read.columns).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the table once."""
        with told_in_one_line():
            given = self._given()
            if self._has_lease(given):
                lease = given.text("lease")
                raise given.wrong("lease", "left out where nothing is streamed", lease)
            table = self._table(given)
            return batch_reader(given, table, self._decode(given, table.columns, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return what follows the table, or hands out messages under a lease."""
        try:
            return self._streamed(self._given(), schema)
        except TamboError as error:
            return Refusal(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what appends rows, once each."""
        with told_in_one_line():
            return BatchWriter(self.sink(self.options, schema, overwrite=overwrite).checked())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return what appends the rows of each batch, once each."""
        with told_in_one_line():
            return StreamWriter(self.sink(self.options, schema, overwrite=overwrite))

    def _streamed(self, given: Given, schema: StructType) -> DataSourceStreamReader:
        has_lease = self._has_lease(given)
        if (followed := self._followed(given)) is not None:
            decode = self._decode(given, followed.columns, schema)
            return tail_reader(given, followed, decode)
        if not has_lease:
            raise SettingsError(
                f"format {self.format!r}: the option lease is missing: a stream takes messages "
                "from its queue, and the lease names who has them"
            )
        leased = self._leased(given)
        return LeasedReader.given(given, leased, self._decode(given, leased.columns, schema))

    def _decode(self, given: Given, columns: Columns, schema: StructType) -> Decode:
        """Return what makes rows of *columns* into rows of *schema*; it must be our own."""
        payload = self._payload(given)
        if not _is_of(schema, payload.columns(columns)):
            raise SettingsError(
                f"format {self.format!r}: its columns are its own: leave schema() out, and select "
                "from those there are"
            )
        return payload.bound(schema).apply

    def _given(self) -> Given:
        return Given(self.format, self.options, self.known)

    def _payload(self, given: Given) -> Payload:
        return Payload.given(given, self.body)

    def _kind(self, given: Given) -> str:
        """Return which table is meant."""
        return given.one_of("table", self.tables, self.tables[0])

    def _has_lease(self, given: Given) -> bool:
        """Whether there is a lease; raise `SettingsError` where there can be none."""
        if given.text("lease", None) is None:
            return False
        if (kind := self._kind(given)) != self.tables[0]:
            raise given.wrong("table", f"{self.tables[0]} where there is a lease", kind)
        return True

    def _followed(self, given: Given) -> TailTable | None:  # noqa: ARG002  (some have such tables)
        """Return the table to follow; `None` if it is one to lease."""
        return None

    @abstractmethod
    def _table(self, given: Given) -> Table:
        """Return the table that is asked for."""

    def _leased(self, given: Given) -> Leased:  # noqa: ARG002  (as those that can)
        """Return what is handed out under a lease."""
        raise SettingsError(f"format {self.format!r}: nothing of it can be leased")


def _is_of(schema: StructType, columns: Columns) -> bool:
    """Whether *schema* has these *columns*, and no others."""
    names = [name for name, _, _ in columns]
    return schema.names == names and all(
        # What the payload is said to be is looked at elsewhere.
        isinstance(kind, str) or arrow_type(field.dataType) == kind
        for field, (_, kind, _) in zip(schema, columns, strict=True)
    )
