"""The format ``chasqui``: ChasquiMQ's queues as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.chasqui.bulk.lease import ChasquiLeaseOps
from tambomq.chasqui.keys import GROUP
from tambomq.spark.core import payload
from tambomq.spark.core.options import SourceOptions
from tambomq.spark.core.source import QueueSource
from tambomq.spark.core.table import Table
from tambomq.spark.formats.chasqui import sink as chasqui_sink
from tambomq.spark.formats.chasqui.leased import LeasedJobs
from tambomq.spark.formats.chasqui.streams import PendingTable, StreamTable
from tambomq.spark.formats.chasqui.zsets import ResultTable, SortedSetTable
from tambomq.spark.lease import reader as leased
from tambomq.spark.tail import options as tail_options

NAME: Final = "chasqui"
TABLES: Final[dict[str, Callable[[bool, str], Table]]] = {
    "jobs": lambda show, _: StreamTable("jobs", show),
    "delayed": lambda show, _: SortedSetTable("delayed", show),
    "dlq": lambda show, _: StreamTable("dlq", show),
    "events": lambda show, _: StreamTable("events", show),
    "repeat": lambda show, _: SortedSetTable("repeat", show),
    "results": lambda _, __: ResultTable(),
    "pending": lambda show, group: PendingTable(group, show),
}
TAILS: Final = ("events", "dlq")
"""Those that can be followed."""
OPTIONS: Final = (
    *("url", "queue", "table", "partitions", "pushdown", "group", "damaged"),
    *dict.fromkeys((*tail_options.OPTIONS, *leased.OPTIONS)),
    *payload.OPTIONS,
)


class ChasquiSource(QueueSource):
    """Reads tables of ChasquiMQ and adds jobs; ``table`` is one of `TABLES`.

    ``damaged`` says whether rows that cannot be read are to ``show`` with an error, or to ``skip``.
    """

    format = NAME
    known = OPTIONS
    tables = tuple(TABLES)
    sink = staticmethod(chasqui_sink.sink)

    def _table(self, options: SourceOptions) -> Table:
        return TABLES[self._table_name(options)](_shows(options), options.text("group", GROUP))

    def _tail_table(self, options: SourceOptions) -> StreamTable | None:
        kind = self._table_name(options)
        if kind not in ("jobs", *TAILS):
            raise options.wrong("table", f"jobs, {' or '.join(TAILS)} to be streamed", kind)
        return StreamTable(kind, _shows(options)) if kind in TAILS else None

    def _leased_source(self, options: SourceOptions) -> LeasedJobs:
        if not _shows(options):
            # Skipped jobs would be acknowledged with their batch, unseen by any consumer.
            raise options.wrong("damaged", "show where there is a lease", "skip")
        return LeasedJobs(ChasquiLeaseOps(options.text("group", GROUP)))


def _shows(options: SourceOptions) -> bool:
    return options.one_of("damaged", ("show", "skip"), "show") == "show"
