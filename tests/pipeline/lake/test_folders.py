"""Queues of any name are read into the lake, and none stops the pipeline."""

from __future__ import annotations

from datetime import date
from pathlib import PurePosixPath
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui.keys import Keys
from tambomq.journal.keys import JournalKeys
from tambomq.pipeline.ingest.batch import LifecycleTimeouts
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake import folders
from tambomq.pipeline.lake.compact import compact
from tambomq.pipeline.lake.lake import BRONZE, COLUMNS, Lake
from tests.servers import Server

SOON = LifecycleTimeouts(watermark_delay_ms=0, give_up_ms=10**12)
PLAIN = ("orders", "..", "a/b", "a=b", " a ", "\n\t\x01\x7f", "a%2Fb", "007", "{*}?[x]\\:'\"#")
LONG = "x" * 260
ODD = (
    *(LONG, "x" * 100_000, "ü" * 200, "%" * 90, "ü", "日本語", "\x00", "\u202e", "a\u2028b"),
    *("__HIVE_DEFAULT_PARTITION__", "=sha256-" + "0" * 64, "../" * 100),
)


@pytest.mark.parametrize("queue", [*PLAIN, "x" * 249])
def test_a_name_that_makes_a_folder_is_spelled_as_it_was(queue: str) -> None:
    assert folders.is_plain(queue)


@pytest.mark.parametrize("queue", [*ODD, "", "x" * 250], ids=lambda each: repr(each[:20]))
def test_a_name_that_cannot_be_a_folder_is_not_plain(queue: str) -> None:
    assert not folders.is_plain(queue)


def test_only_folders_of_digests_are_taken_for_such() -> None:
    coded = f"bronze/protocol=rsmq/queue=%3Dsha256-{'0' * 64}/date=2026-11-16/a.parquet"
    assert folders.is_coded(coded)
    assert not folders.is_coded("bronze/protocol=rsmq/queue=%3Dsha256-0/date=2026-11-16/a.parquet")
    assert not folders.is_coded("bronze/protocol=rsmq/queue=orders/date=2026-11-16/a.parquet")


@pytest.mark.slow
def test_rows_of_any_queue_are_read_with_its_name(spark: SparkSession, lake: Lake) -> None:
    odd = (LONG, "ü", "\x00", "__HIVE_DEFAULT_PARTITION__")
    names = ["orders", "a/b", *odd]
    ddl = "protocol STRING, queue STRING, date DATE, id STRING"
    rows = [("rsmq", queue, date(2026, 11, 16), queue) for queue in names]
    with lake.staged() as home:
        stored = folders.stored(spark.createDataFrame(rows, ddl).coalesce(1), names)
        stored.write.partitionBy("protocol", "queue", "date").parquet(str(home))
        files = lake.adopt(BRONZE, home)
    found = lake.rows(spark, BRONZE, files)
    assert {*found.columns} == {column.name for column in COLUMNS[BRONZE]}
    pairs = [(row.queue, row.id) for row in found.select("queue", "id").collect()]
    assert sorted(pairs) == sorted((queue, queue) for queue in names)
    assert sum(folders.is_coded(file.path) for file in files) == len(odd)


@pytest.mark.slow
def test_rows_of_plain_queues_are_written_as_they_are(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("orders",)], "queue STRING")
    assert folders.stored(rows, PLAIN) is rows


def happen(db: redis.Redis, queue: str, *jobs: str) -> None:
    """Tell the events of *queue* that *jobs* wait."""
    for job in jobs:
        db.xadd(Keys(queue).events, {"e": "waiting", "id": job, "ts": "1"})


def taken(spark: SparkSession, lake: Lake, server: Server) -> int:
    options = PipelineOptions(server.url, once=True, timeouts=SOON)
    return sum(each.rows for each in Pipeline(spark, lake, options).follow(lambda: False))


def queues(spark: SparkSession, lake: Lake, table: str) -> dict[str, int]:
    found = lake.read(spark, table).groupBy("queue").count().collect()
    return {row.queue: row["count"] for row in found}


@pytest.mark.slow
def test_queues_of_any_name_are_in_all_tables(
    spark: SparkSession, lake: Lake, server: Server, db: redis.Redis
) -> None:
    names = [*PLAIN, *ODD]
    for queue in names:
        happen(db, queue, "a", "b")
    # Bytes that are no text name no queue of ours, and must not stop the others.
    for key in (Keys("orders").events, JournalKeys("rsmq", "orders").journal):
        odd = key.encode().replace(b"orders", b"\xff\xfe")
        db.xadd(odd, {"e": "waiting", "id": "x", "ts": "1"})
    assert taken(spark, lake, server) >= 2 * len(names)
    wanted = dict.fromkeys(names, 2)
    for table in ("bronze", "silver"):
        found = queues(spark, lake, table)
        assert {name: found.get(name) for name in names} == wanted, table
    assert taken(spark, lake, server) == 0
    happen(db, LONG, "c")
    assert taken(spark, lake, server) == 1
    compact(lake)
    assert queues(spark, lake, "bronze")[LONG] == 3
    gold: Any = lake.read(spark, "gold").where("queue = 'orders'").collect()
    assert sum(row.entered for row in gold) == 2


@pytest.mark.slow
def test_a_long_queue_name_is_stored_in_the_files_of_its_folder(
    spark: SparkSession, lake: Lake, server: Server, db: redis.Redis
) -> None:
    for queue in (LONG, "orders"):
        happen(db, queue, "a")
    assert taken(spark, lake, server) == 2
    assert queues(spark, lake, "bronze") == {LONG: 1, "orders": 1}
    files = [PurePosixPath(file.path) for file in lake.log.version().of(BRONZE)]
    assert {path.parts[2] for path in files if not folders.is_coded(str(path))} == {"queue=orders"}
    (coded,) = (path for path in files if folders.is_coded(str(path)))
    stored = pq.ParquetFile(lake.path / coded).read([folders.NAME])
    assert stored[folders.NAME].to_pylist() == [LONG]
