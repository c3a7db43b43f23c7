"""The format ``gomq``: GOMQ's main and dedicated queues, and its subscriptions, as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.spark.core import payload
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.source import QueueSource
from tambomq.spark.core.table import Table
from tambomq.spark.formats.gomq import sink as gomq_sink
from tambomq.spark.formats.gomq.leased import LeasedKey
from tambomq.spark.formats.gomq.tables import DedicatedQueueTable, MainQueueTable, SubscriptionTable
from tambomq.spark.lease import reader as leased

NAME: Final = "gomq"
TABLES: Final[dict[str, Callable[[], Table]]] = {
    "main": MainQueueTable,
    "dedicated": DedicatedQueueTable,
    "subscriptions": SubscriptionTable,
}
OPTIONS: Final = (
    *("url", "queue", "table", "partitions", "pushdown"),
    *leased.OPTIONS,
    *payload.OPTIONS,
)


class GomqSource(QueueSource):
    """Reads tables of GOMQ, ``table`` is one of `TABLES`; publishes. ``queue`` names keys."""

    format = NAME
    known = OPTIONS
    tables = tuple(TABLES)
    sink = staticmethod(gomq_sink.sink)

    def _table(self, options: SourceOptions) -> Table:
        return TABLES[self._table_name(options)]()

    def _leased_source(self, options: SourceOptions) -> LeasedKey:  # noqa: ARG002  (as the others)
        return LeasedKey()
