"""The format ``tambo``: journals of queues as tables to read, follow and write."""

from __future__ import annotations

from typing import Final

from tambomq.journal.keys import PROTOCOLS
from tambomq.spark.core import payload
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.source import QueueSource
from tambomq.spark.formats.tambo import sink as tambo_sink
from tambomq.spark.formats.tambo.tables import JournalTable
from tambomq.spark.tail import options as tail_options

NAME: Final = "tambo"
TABLES: Final = ("journal",)
OPTIONS: Final = (
    *("url", "protocol", "queue", "table", "partitions", "pushdown"),
    *tail_options.OPTIONS,
    *payload.OPTIONS,
)


class TamboSource(QueueSource):
    """Reads and follows the journals of one ``protocol``; appends to these."""

    format = NAME
    known = OPTIONS
    tables = TABLES
    body = "body"
    sink = staticmethod(tambo_sink.sink)

    def _table(self, options: SourceOptions) -> JournalTable:
        self._table_name(options)
        protocol = options.one_of("protocol", PROTOCOLS, options.text("protocol"))
        return JournalTable(protocol)

    def _tail_table(self, options: SourceOptions) -> JournalTable:
        return self._table(options)
