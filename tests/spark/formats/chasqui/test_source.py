"""The format ``chasqui``, as Spark uses it."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.errors import SettingsError
from tambomq.spark.core import schemas
from tambomq.spark.formats.chasqui.source import OPTIONS, TABLES, ChasquiSource
from tests.servers import Server
from tests.spark.chasqui_filling import KEYS, NOW, envelope, fill, put


def read(spark: SparkSession, server: Server, **options: Any) -> DataFrame:
    """The table that *options* say, of the queue ``mail`` if they do not say another."""
    given = {"url": server.url, "queue": "mail", **options}
    return spark.read.format("chasqui").options(**given).load()


def ids(found: DataFrame) -> list[str]:
    return sorted((row.id for row in found.select("id").collect()), key=str)


@pytest.mark.parametrize("table", TABLES)
def test_each_table_has_its_columns_in_spark(
    table: str, spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    fill(db)
    found = read(spark, server, table=table)
    [row] = found.collect()
    assert row.queue == "mail"
    assert all(field.metadata.get("comment") for field in found.schema)


def test_jobs_are_read_in_parts_and_each_once(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    put(db, 5000)
    found = read(spark, server, partitions=3)
    assert found.rdd.getNumPartitions() == 3
    assert found.selectExpr("count(*)", "count(DISTINCT id)").collect() == [(5000, 5000)]
    assert db.xlen(KEYS.stream) == 5000


def test_a_view_is_made_in_sql(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    put(db, 10)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW waiting USING chasqui "
        f"OPTIONS (url '{server.url}', queue 'mail')"
    )
    found = spark.sql("SELECT name, count(*) AS jobs FROM waiting GROUP BY name ORDER BY name")
    assert found.collect() == [("kind-0", 5), ("kind-1", 5)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"enqueued_at >= timestamp_millis({NOW + 7})", ["7", "8", "9"]),
        (f"name = 'kind-1' AND enqueued_at > timestamp_millis({NOW + 5})", ["7", "9"]),
        (f"entry_id > '{NOW + 7}-0'", ["8", "9"]),
        ("queue = 'other'", []),
        ("name IS NULL OR id = '4'", ["4"]),
    ],
)
def test_filters_that_are_pushed_are_right(
    condition: str, expected: list[str], spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    put(db, 10)
    assert ids(read(spark, server, pushdown=True).where(condition)) == expected


def test_one_load_serves_many_queries(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    put(db, 10)
    jobs = read(spark, server)
    assert jobs.where("name = 'kind-1'").count() == 5
    put(db, 2, first=NOW + 1000)
    assert jobs.count() == 12
    assert jobs.where("name = 'kind-0'").union(jobs.where("name = 'kind-1'")).count() == 12


def test_many_queues_are_one_table(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    for queue in ("mail", "mail-eu", "post"):
        db.xadd(Keys(queue).stream, {"d": envelope(queue)})
    assert ids(read(spark, server, queue="mail*")) == ["mail", "mail-eu"]
    assert ids(read(spark, server, queue="mail,post")) == ["mail", "post"]
    assert ids(read(spark, server, queue='["post"]')) == ["post"]
    assert ids(read(spark, server, queue="*").where("queue = 'post'")) == ["post"]
    assert ids(read(spark, server, queue="nobody")) == []
    assert ids(read(spark, server, queue="nob*")) == []


def test_entries_that_cannot_be_read_end_no_query(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    put(db, 3)
    db.xadd(KEYS.stream, {"d": b"\xc1"})
    shown = read(spark, server)
    assert shown.count() == 4
    [row] = shown.where("error IS NOT NULL").collect()
    assert (row.id, bytes(row.raw)) == (None, b"\xc1")
    assert read(spark, server, damaged="skip").count() == 3


def test_payloads_become_columns(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    body = encode_envelope(Envelope("a", b"\x81\xa2to\xa3ada", NOW))
    db.xadd(KEYS.stream, {"d": body})
    found = read(spark, server, payload="msgpack", payloadSchema="to STRING")
    assert found.selectExpr("value.to", "error").collect() == [("ada", None)]
    db.set(KEYS.result("a"), b"\x07")
    assert read(spark, server, table="results", payload="msgpack").first()["value"] == "7"  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "the option queue is missing"),
        ({"queue": "q", "table": "shoes"}, "table must be one of jobs, delayed, dlq"),
        ({"queue": "q", "damaged": "maybe"}, "damaged must be one of show, skip"),
        ({"queue": "q", "tabel": "jobs"}, "did you mean table?"),
        ({"queue": "q", "table": "events", "payload": "json"}, "not for this table"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], fault: str) -> None:
    source = ChasquiSource(options)
    with pytest.raises(SettingsError) as error:
        source.reader(from_arrow_schema(schemas.CHASQUI_JOBS.arrow))
    assert fault in str(error.value)


@pytest.mark.parametrize("table", sorted(TABLES.keys() - {"events", "dlq", "jobs"}))
def test_only_jobs_events_and_dlq_can_be_streamed(table: str) -> None:
    refused = ChasquiSource({"queue": "q", "table": table}).streamReader(StructType())
    with pytest.raises(SettingsError, match="jobs, events or dlq"):
        refused.initialOffset()


def test_options_are_named_once() -> None:
    assert len(set(OPTIONS)) == len(OPTIONS)
