"""The format ``gomq``: GOMQ's main and dedicated queues, and its subscriptions, as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.gomq.model import Options
from tambomq.spark import gomq_sink, leased, payload
from tambomq.spark.gomq_tables import Dedicated, Main, Subscriptions
from tambomq.spark.leased_gomq import LeasedKey
from tambomq.spark.options import Given
from tambomq.spark.source import QueueSource
from tambomq.spark.table import Table

NAME: Final = "gomq"
TABLES: Final[dict[str, Callable[[], Table]]] = {
    "main": Main,
    "dedicated": Dedicated,
    "subscriptions": Subscriptions,
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

    def _table(self, given: Given) -> Table:
        return TABLES[self._kind(given)]()

    def _leased(self, given: Given) -> LeasedKey:  # noqa: ARG002  (as the others)
        return LeasedKey(Options())
