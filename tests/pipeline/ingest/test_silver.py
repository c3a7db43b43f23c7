"""Rows of silver and gold from rows of bronze, without a lake."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tambomq.pipeline.ingest import gold, silver
from tambomq.pipeline.lake import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_767_225_600_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp((START_MS + ms) / 1000, UTC)


def event_row(
    protocol: str, id: str, event: str, ms: int, attempt: int | None = None
) -> dict[str, Any]:
    """Return a row of bronze."""
    source = "events" if protocol == "chasqui" and event != "sent" else "journal"
    when = {"recorded_at": at(ms), "at": at(ms), "entry_id": f"{START_MS + ms}-0"}
    what = {"event": event, "id": id, "attempt": attempt, "date": at(ms).date()}
    return {"protocol": protocol, "queue": "a", "source": source, **when, **what}


ROWS = [
    *(event_row(protocol, "left", "sent", 0) for protocol in ("rsmq", "chasqui", "gomq")),
    *(event_row(protocol, "left", "moved", 5000) for protocol in ("rsmq", "chasqui", "gomq")),
    event_row("rsmq", "tried", "sent", 0),
    event_row("rsmq", "tried", "received", 1000, 1),
    event_row("rsmq", "tried", "moved", 5000),
    event_row("rsmq", "back", "moved", 5000),
    event_row("rsmq", "back", "sent", 6000),
]


def states(spark: SparkSession) -> DataFrame:
    # Spark takes rows by place.
    names = [column.name for column in tables.BRONZE]
    rows = [tuple(row.get(name) for name in names) for row in ROWS]
    return silver.folded(silver.states(spark.createDataFrame(rows, tables.BRONZE.ddl)))


def test_a_moved_message_has_a_closed_lifecycle(spark: SparkSession) -> None:
    found = {(row.protocol, row.id): row for row in silver.result_rows(states(spark)).collect()}
    for protocol in ("rsmq", "chasqui", "gomq"):
        row = found[protocol, "left"]
        assert (row.outcome, row.attempts, row.wait_ms, row.run_ms) == ("moved", 0, None, None)
        assert (row.finished_at - row.enqueued_at).total_seconds() == 5
    tried = found["rsmq", "tried"]
    assert (tried.outcome, tried.attempts, tried.wait_ms, tried.run_ms) == ("moved", 1, 1000, None)
    # Who comes back waits again.
    assert (found["rsmq", "back"].outcome, found["rsmq", "back"].finished_at) == ("waiting", None)


def test_a_moved_message_has_ended_and_is_neither_done_nor_dead(spark: SparkSession) -> None:
    left = states(spark).where("id = 'left'")
    minutes = gold.summed(gold.of_lifecycles(left, closed=False)).collect()
    assert {row.protocol for row in minutes} == {"rsmq", "chasqui", "gomq"}
    for row in minutes:
        assert (row.entered, row.gone, row.done or 0, row.dead or 0) == (1, 1, 0, 0)
