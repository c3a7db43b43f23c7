"""`QueueSource`: the base class of all data sources (formats).

A format declares its options, tables and payload column, and creates tables and sinks from options.
It is picklable, since Spark sends it to other processes.
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
from tambomq.spark.core.batch import Decode, batch_reader
from tambomq.spark.core.columns import Columns
from tambomq.spark.core.failing_reader import FailingReader
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.payload import PayloadDecoder, arrow_type
from tambomq.spark.core.short_errors import one_line_errors
from tambomq.spark.core.table import Table
from tambomq.spark.lease.leased_source import LeasedSource
from tambomq.spark.lease.reader import LeasedReader
from tambomq.spark.sink.writer import BatchWriter, Sink, StreamWriter
from tambomq.spark.tail.reader import TailTable, tail_reader


class QueueSource(DataSource):
    """A data source whose tables are read, followed or leased, and whose queues are appended to.

    Errors are shown in one line.
    """

    format: ClassVar[str]
    """The name of the format in Spark."""
    known: ClassVar[tuple[str, ...]]
    """The options of a read."""
    tables: ClassVar[tuple[str, ...]]
    """Values of the option ``table``. The first is the default, and the one that can be leased."""
    body: ClassVar[str] = "payload"
    """The column that the option ``payload`` decodes."""
    sink: ClassVar[Callable[..., Sink]]
    """Returns the sink for the options, the schema of the rows, and *overwrite*."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.format

    def schema(self) -> str:
        """Return the columns of the selected table."""
        with one_line_errors():
            options = self._source_options()
            # Spark does not say whether this is for a stream: only streams have a lease.
            read = (
                self._leased_source(options) if self._has_lease(options) else self._table(options)
            )
            return self._payload(options).columns(read.columns).ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader of the table."""
        with one_line_errors():
            options = self._source_options()
            if self._has_lease(options):
                lease = options.text("lease")
                raise options.wrong("lease", "left out of a batch read", lease)
            table = self._table(options)
            return batch_reader(options, table, self._decode(options, table.columns, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader that follows the table, or claims messages under a lease."""
        try:
            return self._streamed(self._source_options(), schema)
        except TamboError as error:
            return FailingReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer that appends rows, once each."""
        with one_line_errors():
            return BatchWriter(self.sink(self.options, schema, overwrite=overwrite).checked())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  (Spark's name)
        """Return the writer that appends the rows of each batch, once each."""
        with one_line_errors():
            return StreamWriter(self.sink(self.options, schema, overwrite=overwrite))

    def _streamed(self, options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
        has_lease = self._has_lease(options)
        if (followed := self._tail_table(options)) is not None:
            decode = self._decode(options, followed.columns, schema)
            return tail_reader(options, followed, decode)
        if not has_lease:
            raise SettingsError(
                f"format {self.format!r}: the option lease is missing: a stream consumes the "
                "messages of its queue, under a lease whose name you choose"
            )
        leased = self._leased_source(options)
        return LeasedReader.from_options(
            options, leased, self._decode(options, leased.columns, schema)
        )

    def _decode(self, options: SourceOptions, columns: Columns, schema: StructType) -> Decode:
        """Return the conversion from *columns* to *schema*, which must not be the caller's own."""
        payload = self._payload(options)
        if not _is_of(schema, payload.columns(columns)):
            raise SettingsError(
                f"format {self.format!r}: its columns are fixed: leave schema() out, and select "
                "those that you need"
            )
        return payload.bound(schema).apply

    def _source_options(self) -> SourceOptions:
        return SourceOptions(self.format, self.options, self.known)

    def _payload(self, options: SourceOptions) -> PayloadDecoder:
        return PayloadDecoder.from_options(options, self.body)

    def _table_name(self, options: SourceOptions) -> str:
        """Return the selected table."""
        return options.one_of("table", self.tables, self.tables[0])

    def _has_lease(self, options: SourceOptions) -> bool:
        """Whether a lease is given; raise `SettingsError` if the table cannot have one."""
        if options.text("lease", None) is None:
            return False
        if (kind := self._table_name(options)) != self.tables[0]:
            raise options.wrong("table", f"{self.tables[0]} where there is a lease", kind)
        return True

    def _tail_table(self, options: SourceOptions) -> TailTable | None:  # noqa: ARG002  (some have such tables)
        """Return the table to follow; `None` if it must be leased."""
        return None

    @abstractmethod
    def _table(self, options: SourceOptions) -> Table:
        """Return the selected table."""

    def _leased_source(self, options: SourceOptions) -> LeasedSource:  # noqa: ARG002  (as those that can)
        """Return the source of leased messages."""
        raise SettingsError(f"format {self.format!r}: none of its tables can be leased")


def _is_of(schema: StructType, columns: Columns) -> bool:
    """Whether *schema* has exactly these *columns*."""
    names = [name for name, _, _ in columns]
    return schema.names == names and all(
        # The type of the payload's value is checked in `PayloadDecoder.bound`.
        isinstance(kind, str) or arrow_type(field.dataType) == kind
        for field, (_, kind, _) in zip(schema, columns, strict=True)
    )
