"""The format ``rsmq``: RSMQ's queues and messages as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.rsmq.keys import NAMESPACE, Keys
from tambomq.spark import leased, payload, rsmq_sink
from tambomq.spark.leased_rsmq import LeasedMessages
from tambomq.spark.options import Given
from tambomq.spark.rsmq_tables import Messages, Queues
from tambomq.spark.source import QueueSource
from tambomq.spark.table import Table

NAME: Final = "rsmq"
TABLES: Final[dict[str, Callable[[Keys], Table]]] = {"messages": Messages, "queues": Queues}
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

    def _table(self, given: Given) -> Table:
        return TABLES[self._kind(given)](_keys(given))

    def _leased(self, given: Given) -> LeasedMessages:
        return LeasedMessages(_keys(given), given.text("deadQueue", None) or "")


def _keys(given: Given) -> Keys:
    return Keys(given.text("ns", NAMESPACE))
