"""The pipeline over traffic whose end is known: what is in the lake is what happened."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui.keys import Keys
from tambomq.errors import LakeError
from tambomq.pipeline.ingest.batch import LATE_ROWS, LifecycleTimeouts
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake import lake as lakes
from tambomq.pipeline.lake.compact import compact
from tambomq.pipeline.lake.lake import BRONZE, CLOSED, COLUMNS, Lake
from tambomq.spark.core.columns import TEXT, Column, Columns
from tests.pipeline import comparing
from tests.pipeline.truth import Lifecycle
from tests.pipeline.workload import Workload
from tests.servers import Server, binaries

JOBS = 600
SOON = LifecycleTimeouts(watermark_delay_ms=0, give_up_ms=10**12)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # many batches, on a machine with others
]


class Filled(NamedTuple):
    """A lake with all that happened on a server."""

    server: Server
    lake: Lake
    lifecycles: list[Lifecycle]


def run(spark: SparkSession, lake: Lake, options: PipelineOptions) -> int:
    """Run a pipeline over all that is there; return how many rows that was."""
    return sum(each.rows for each in Pipeline(spark, lake, options).follow(lambda: False))


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with Server(binaries.valkey()) as server:
        traffic = Workload(server.url)
        traffic.fill(JOBS)
        traffic.close()
        lake = Lake.make(tmp_path_factory.mktemp("filled") / "lake")
        run(spark, lake, PipelineOptions(server.url, once=True, batch_rows=1400, timeouts=SOON))
        yield Filled(server, lake, traffic.lifecycles)


@pytest.fixture
def copied(filled: Filled, tmp_path: Path) -> Filled:
    """The same lake, to be changed."""
    shutil.copytree(filled.lake.path, tmp_path / "lake", dirs_exist_ok=True)
    return filled._replace(lake=Lake.open(tmp_path / "lake", writable=True))


def test_bronze_has_every_entry_once(spark: SparkSession, filled: Filled) -> None:
    assert filled.lake.log.version().number > 1
    comparing.is_bronze(spark, filled.lake, filled.lifecycles)


def test_silver_matches_the_lifecycles_that_were_generated(
    spark: SparkSession, filled: Filled
) -> None:
    assert filled.lake.log.version().of(CLOSED)
    comparing.is_silver(spark, filled.lake, filled.lifecycles)


def test_gold_matches_the_lifecycles_that_were_generated(
    spark: SparkSession, filled: Filled
) -> None:
    comparing.is_gold(spark, filled.lake, filled.lifecycles)


def test_files_lie_by_protocol_queue_and_day(filled: Filled) -> None:
    folders = {Path(file.path).parts[1:3] for file in filled.lake.log.version().of(BRONZE)}
    assert ("protocol=chasqui", "queue=mail%2Fout 7") in folders
    assert ("protocol=kqueue", "queue=ticks") in folders


def test_rows_are_not_read_a_second_time(spark: SparkSession, copied: Filled) -> None:
    before = copied.lake.log.version().number
    assert run(spark, copied.lake, PipelineOptions(copied.server.url, once=True)) == 0
    assert copied.lake.log.version().number == before


def test_events_of_a_closed_job_are_kept_as_late_and_counted(
    spark: SparkSession, copied: Filled
) -> None:
    closed = next(
        lifecycle
        for lifecycle in copied.lifecycles
        if lifecycle.queue == "orders" and lifecycle.finished_ms
    )
    fields: Any = {"e": "completed", "id": closed.id, "ts": "1", "attempt": "9"}
    with redis.Redis.from_url(copied.server.url) as db:
        place = db.xadd(Keys("orders").events, fields)
    try:
        assert (
            run(spark, copied.lake, PipelineOptions(copied.server.url, once=True, timeouts=SOON))
            == 1
        )
        (late,) = comparing.rows(spark, copied.lake, "late")
        assert (late["id"], late["attempt"]) == (closed.id, 9)
        assert copied.lake.log.version().facts[LATE_ROWS] == 1
        comparing.is_silver(spark, copied.lake, copied.lifecycles)
        assert copied.lake.read(spark, "bronze").where("attempt = 9").count() == 1
    finally:
        with redis.Redis.from_url(copied.server.url) as db:
            db.xdel(Keys("orders").events, place)


def test_a_job_redriven_after_it_was_closed_has_a_second_lifecycle(
    spark: SparkSession, copied: Filled
) -> None:
    dead = next(
        lifecycle
        for lifecycle in copied.lifecycles
        if lifecycle.queue == "orders" and lifecycle.outcome == "dead" and lifecycle.body_bytes
    )
    at_ms = (dead.finished_ms or 0) + 3_600_000
    events: list[Any] = [
        {"e": "completed", "id": dead.id, "ts": str(at_ms + 30), "attempt": "1"},
        {"e": "active", "id": dead.id, "ts": str(at_ms + 20), "attempt": "1"},
        {"e": "waiting", "id": dead.id, "ts": str(at_ms), "n": dead.name or "x"},
    ]
    with redis.Redis.from_url(copied.server.url) as db:
        places = [db.xadd(Keys("orders").events, fields) for fields in reversed(events)]
    try:
        assert (
            run(spark, copied.lake, PipelineOptions(copied.server.url, once=True, timeouts=SOON))
            == 3
        )
        lifecycles = comparing.silver(spark, copied.lake)
        first = lifecycles["chasqui", "orders", dead.id, False]
        second = lifecycles["chasqui", "orders", dead.id, True]
        assert (first["outcome"], second["outcome"]) == ("dead", "done")
        assert (second["enqueued_at"], second["wait_ms"]) == (at_ms, 20)
        assert comparing.rows(spark, copied.lake, "late") == []
    finally:
        with redis.Redis.from_url(copied.server.url) as db:
            db.xdel(Keys("orders").events, *places)


def test_compaction_changes_no_row(spark: SparkSession, copied: Filled) -> None:
    before = len(copied.lake.log.version().of(BRONZE))
    done = compact(copied.lake)
    assert done.merged > done.into > 0
    assert len(copied.lake.log.version().of(BRONZE)) < before
    comparing.is_bronze(spark, copied.lake, copied.lifecycles)
    comparing.is_silver(spark, copied.lake, copied.lifecycles)
    comparing.is_gold(spark, copied.lake, copied.lifecycles)


def test_a_column_that_files_are_too_old_to_have_is_null(
    spark: SparkSession, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = Columns(*COLUMNS[BRONZE], Column("colour", TEXT, "which colour it has"))
    monkeypatch.setitem(COLUMNS, BRONZE, wider)
    found = filled.lake.read(spark, "bronze")
    assert "colour" in found.columns
    assert found.where("colour IS NOT NULL").count() == 0
    assert found.count() == sum(file.rows for file in filled.lake.log.version().of(BRONZE))


def test_another_checkpoint_is_refused(spark: SparkSession, copied: Filled) -> None:
    shutil.rmtree(copied.lake.checkpoint)
    before = copied.lake.log.version().number
    with pytest.raises(LakeError, match="filled with another checkpoint"):
        run(spark, copied.lake, PipelineOptions(copied.server.url, once=True))
    assert copied.lake.log.version().number == before


def test_a_full_disk_fails_the_batch_which_is_repeated_later(
    spark: SparkSession, server: Server, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Workload(server.url)
    traffic.fill(60)
    traffic.close()
    adopt = lakes.Lake.adopt

    def full(self: Lake, table: str, written: Path) -> Any:
        if table == CLOSED:
            raise OSError(errno.ENOSPC, "No space left on device")
        return adopt(self, table, written)

    with monkeypatch.context() as patched:
        patched.setattr(lakes.Lake, "adopt", full)
        with pytest.raises(LakeError, match="is full; the batch was not written"):
            run(spark, lake, PipelineOptions(server.url, once=True, timeouts=SOON))
    assert lake.log.version().number == 0
    assert [*lake.path.rglob("*.parquet")] == []
    run(spark, lake, PipelineOptions(server.url, once=True, timeouts=SOON))
    comparing.is_bronze(spark, lake, traffic.lifecycles)
    comparing.is_silver(spark, lake, traffic.lifecycles)


def test_entries_that_make_no_sense_are_kept_and_stop_nothing(
    spark: SparkSession, server: Server, db: redis.Redis, lake: Lake
) -> None:
    largest = str(2**63 - 1)
    events: list[Any] = [
        {"e": "active", "id": "-1234567890", "ts": "soon", "attempt": "9" * 30},
        {"e": "delayed", "id": "x", "ts": "1700000000000", "delay_ms": largest[:18]},
        {"e": "completed", "id": "x", "ts": "1700000000001", "duration_us": largest[:18]},
        {"e": "failed", "id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ts": largest},
        {"e": "retry-scheduled", "id": "", "n": "\x00"},
        {"what": b"\xff\xfe"},
    ]
    for fields in events:
        db.xadd(Keys("007").events, fields)
    db.xadd(Keys("007").dlq, {"d": b"\xc1"})
    db.xadd(Keys("007").events, {"e": "waiting", "id": "y"}, id=f"{2**64 - 1}-1")
    run(spark, lake, PipelineOptions(server.url, once=True, timeouts=SOON))
    bronze = comparing.rows(spark, lake, "bronze")
    assert len(bronze) == len(events) + 2
    assert {row["queue"] for row in bronze} == {"007"}
    lifecycles = comparing.silver(spark, lake)
    assert lifecycles["chasqui", "007", "x", False]["outcome"] == "done"
    assert lifecycles["chasqui", "007", "-1234567890", False]["outcome"] == "running"
    assert comparing.rows(spark, lake, "gold")
