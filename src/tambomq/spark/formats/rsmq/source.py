"""The format ``rsmq``: RSMQ's queues and messages as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark.core import payload
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.source import QueueSource
from tambomq.spark.core.table import Table
from tambomq.spark.formats.rsmq import sink as rsmq_sink
from tambomq.spark.formats.rsmq.leased import LeasedMessages
from tambomq.spark.formats.rsmq.tables import MessageTable, QueueTable
from tambomq.spark.lease import reader as leased

NAME: Final = "rsmq"
TABLES: Final[dict[str, Callable[[Keys], Table]]] = {"messages": MessageTable, "queues": QueueTable}
OPTIONS: Final = (
    *("url", "ns", "queue", "table", "partitions", "pushdown", "deadQueue"),
    *leased.OPTIONS,
    *payload.OPTIONS,
)


class RsmqSource(QueueSource):
    """Reads tables of RSMQ, ``table`` is one of `TABLES`; appends to its queues."""

    format = NAME
    known = OPTIONS
    tables = tuple(TABLES)
    body = "body"
    sink = staticmethod(rsmq_sink.sink)

    def _table(self, options: SourceOptions) -> Table:
        return TABLES[self._table_name(options)](_keys(options))

    def _leased_source(self, options: SourceOptions) -> LeasedMessages:
        return LeasedMessages(_keys(options), options.text("deadQueue", None) or "")


def _keys(options: SourceOptions) -> Keys:
    return Keys(options.text("ns", NAMESPACE))
