"""The format ``tambo``: the journals of queues, to be read, followed and written."""

from __future__ import annotations

from typing import Final

from tambomq.journal.keys import PROTOCOLS
from tambomq.spark import payload, tail_options, tambo_sink
from tambomq.spark.options import Given
from tambomq.spark.source import QueueSource
from tambomq.spark.tambo_tables import Journal

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

    def _table(self, given: Given) -> Journal:
        self._kind(given)
        protocol = given.one_of("protocol", PROTOCOLS, given.text("protocol"))
        return Journal(protocol)

    def _followed(self, given: Given) -> Journal:
        return self._table(given)
