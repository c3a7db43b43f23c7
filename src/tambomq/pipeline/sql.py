"""SQL over live queues and the lake: each table is a temporary view of Spark.

Only views that the text names are created: each costs a Python process that plans it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from tambomq.errors import SettingsError
from tambomq.journal.keys import PROTOCOLS
from tambomq.pipeline.dlq.selection import quieten, sql_fault
from tambomq.pipeline.lake import tables
from tambomq.pipeline.lake.lake import READABLE, Lake
from tambomq.spark.core import schemas
from tambomq.spark.formats.chasqui import source as chasqui
from tambomq.spark.formats.gomq import source as gomq
from tambomq.spark.formats.rsmq import source as rsmq

_WORD: Final = re.compile(r"[A-Za-z_]\w*")


class View(msgspec.Struct, frozen=True):
    """A table of queues: its format, and the options that choose it."""

    name: str
    format: str
    options: dict[str, str]


QUEUES: Final = (
    *(
        View(f"{source.NAME}_{each}", source.NAME, {"table": each})
        for source in (rsmq, chasqui, gomq)
        for each in source.TABLES
    ),
    *(View(f"{each}_journal", "tambo", {"protocol": each}) for each in PROTOCOLS),
)
NAMES: Final = (*(view.name for view in QUEUES), *READABLE)


class QueryScope(msgspec.Struct, frozen=True):
    """The data of a query: a server, a lake, and the option ``queue`` of the formats."""

    url: str
    lake: Lake | None = None
    queue: str = "*"
    ns: str = ""


def wanted(text: str) -> list[str]:
    """Return the views that *text* names."""
    words = {word.lower() for word in _WORD.findall(text)}
    return [name for name in NAMES if name in words]


def needs_lake(text: str) -> bool:
    """Whether *text* names a table of the lake."""
    return any(name in READABLE for name in wanted(text))


def make(spark: SparkSession, scope: QueryScope, names: Iterable[str]) -> None:
    """Create the views *names*; raise `SettingsError` for a lake table without a lake."""
    views = {view.name: view for view in QUEUES}
    for name in names:
        if name in views:
            found = _queues(spark, scope, views[name])
        elif scope.lake is None:
            raise SettingsError(f"{name} is a table of a lake, and there is none: give --lake")
        else:
            found = scope.lake.read(spark, name)
        found.createOrReplaceTempView(name)


def ask(spark: SparkSession, scope: QueryScope, text: str) -> DataFrame:
    """Return the result of *text*; raise `SettingsError`, in one line, if its SQL is wrong."""
    quieten()
    try:
        make(spark, scope, wanted(text))
        return spark.sql(text)
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        if "TABLE_OR_VIEW_NOT_FOUND" in fault:
            fault = f"{fault}; there are {', '.join(NAMES)}"
        raise SettingsError(fault) from error


def collected(found: DataFrame, limit: int) -> list[Row]:
    """Return up to *limit* rows; raise `SettingsError`, in one line, if that fails."""
    try:
        return found.take(limit)
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(fault) from error


def columns_of() -> list[tuple[str, list[str]]]:
    """Return all views and their columns."""
    known = {
        "rsmq_messages": schemas.RSMQ_MESSAGES,
        "rsmq_queues": schemas.RSMQ_QUEUES,
        "chasqui_jobs": schemas.CHASQUI_JOBS,
        "chasqui_delayed": schemas.CHASQUI_DELAYED,
        "chasqui_dlq": schemas.CHASQUI_DLQ,
        "chasqui_events": schemas.CHASQUI_EVENTS,
        "chasqui_repeat": schemas.CHASQUI_REPEAT,
        "chasqui_results": schemas.CHASQUI_RESULTS,
        "chasqui_pending": schemas.CHASQUI_PENDING,
        "gomq_main": schemas.GOMQ_MAIN,
        "gomq_dedicated": schemas.GOMQ_DEDICATED,
        "gomq_subscriptions": schemas.GOMQ_SUBSCRIPTIONS,
        "bronze": tables.BRONZE,
        "silver": tables.SILVER,
        "gold": tables.GOLD,
        "late": tables.BRONZE,
        "depths": tables.DEPTHS,
    }
    journals = {name: schemas.TAMBO_JOURNAL for name in NAMES if name.endswith("_journal")}
    return [(name, [each.name for each in {**known, **journals}[name]]) for name in NAMES]


def _queues(spark: SparkSession, scope: QueryScope, view: View) -> DataFrame:
    options = {"url": scope.url, "queue": scope.queue, **view.options}
    if scope.ns and view.format == "rsmq":
        options["ns"] = scope.ns
    return spark.read.format(view.format).options(**options).load()
