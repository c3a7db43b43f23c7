"""What SQL can name: the tables of queues, as they are now, and those of the lake.

A view is made only if the text has its name: each costs Spark a process that plans it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from tambomq.errors import SettingsError
from tambomq.journal.keys import PROTOCOLS
from tambomq.pipeline import tables
from tambomq.pipeline.lake import READABLE, Lake
from tambomq.pipeline.picks import quieten, sql_fault
from tambomq.spark import chasqui, gomq, rsmq, schemas

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


class Place(msgspec.Struct, frozen=True):
    """Where queues and the lake are; which queues, as ``queue`` of every format says."""

    url: str
    lake: Lake | None = None
    queue: str = "*"
    ns: str = ""


def wanted(text: str) -> list[str]:
    """Return the views whose names stand in *text*."""
    words = {word.lower() for word in _WORD.findall(text)}
    return [name for name in NAMES if name in words]


def needs_lake(text: str) -> bool:
    """Whether *text* names a table of the lake."""
    return any(name in READABLE for name in wanted(text))


def make(spark: SparkSession, place: Place, names: Iterable[str]) -> None:
    """Let SQL use *names*; raise `SettingsError` for one of the lake's where there is none."""
    views = {view.name: view for view in QUEUES}
    for name in names:
        if name in views:
            found = _queues(spark, place, views[name])
        elif place.lake is None:
            raise SettingsError(f"{name} is a table of a lake, and there is none: give --lake")
        else:
            found = place.lake.read(spark, name)
        found.createOrReplaceTempView(name)


def ask(spark: SparkSession, place: Place, text: str) -> DataFrame:
    """Return what *text* asks for; raise `SettingsError`, in one line, if its SQL is wrong."""
    quieten()
    try:
        make(spark, place, wanted(text))
        return spark.sql(text)
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        if "TABLE_OR_VIEW_NOT_FOUND" in fault:
            fault = f"{fault}; there are {', '.join(NAMES)}"
        raise SettingsError(fault) from error


def collected(found: DataFrame, most: int) -> list[Row]:
    """Return up to *most* rows; raise `SettingsError`, in one line, if one cannot be made."""
    try:
        return found.take(most)
    except Exception as error:
        if (fault := sql_fault(error)) is None:
            raise
        raise SettingsError(fault) from error


def columns_of() -> list[tuple[str, list[str]]]:
    """Return what can be asked: each view and its columns."""
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


def _queues(spark: SparkSession, place: Place, view: View) -> DataFrame:
    options = {"url": place.url, "queue": place.queue, **view.options}
    if place.ns and view.format == "rsmq":
        options["ns"] = place.ns
    return spark.read.format(view.format).options(**options).load()
