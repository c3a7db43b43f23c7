"""The format ``chasqui``: ChasquiMQ's queues as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.lease_ops import Group
from tambomq.spark import chasqui_sink, leased, payload, tail_options
from tambomq.spark.chasqui_sets import Results, Scored
from tambomq.spark.chasqui_tables import Entries, PendingEntries
from tambomq.spark.leased_chasqui import LeasedJobs
from tambomq.spark.options import Given
from tambomq.spark.source import QueueSource
from tambomq.spark.table import Table

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


class ChasquiSource(QueueSource):
    """Reads tables of ChasquiMQ and adds jobs; ``table`` is one of `TABLES`.

    ``damaged`` says whether rows that cannot be read are to ``show`` with an error, or to ``skip``.
    """

    format = NAME
    known = OPTIONS
    tables = tuple(TABLES)
    sink = staticmethod(chasqui_sink.sink)

    def _table(self, given: Given) -> Table:
        return TABLES[self._kind(given)](_shows(given), given.text("group", GROUP))

    def _followed(self, given: Given) -> Entries | None:
        kind = self._kind(given)
        if kind not in ("jobs", *TAILS):
            raise given.wrong("table", f"jobs, {' or '.join(TAILS)} to be streamed", kind)
        return Entries(kind, _shows(given)) if kind in TAILS else None

    def _leased(self, given: Given) -> LeasedJobs:
        if not _shows(given):
            # What is skipped would be acknowledged with its batch, and nobody would have seen it.
            raise given.wrong("damaged", "show where there is a lease", "skip")
        return LeasedJobs(Group(given.text("group", GROUP)))


def _shows(given: Given) -> bool:
    return given.one_of("damaged", ("show", "skip"), "show") == "show"
