"""The format ``gomq`` in a real Spark."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tambomq.errors import SettingsError
from tambomq.gomq import wire
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tambomq.spark.core import schemas
from tambomq.spark.formats.gomq.source import GomqSource
from tambomq.store.sync import Store
from tests.servers import Server

P = "127.0.0.1:5467"
DATE = "Tue Jul 18 08:15:04 UTC 2017"


def table(spark: SparkSession, server: Server, **options: Any) -> DataFrame:
    return spark.read.format("gomq").options(url=server.url, **options).load()


def messages(*payloads: bytes) -> list[bytes]:
    return [wire.encode(f"{n:020}", DATE, payload) for n, payload in enumerate(payloads)]


def test_columns_have_their_comments(spark: SparkSession, server: Server) -> None:
    tables = {
        "main": schemas.GOMQ_MAIN,
        "dedicated": schemas.GOMQ_DEDICATED,
        "subscriptions": schemas.GOMQ_SUBSCRIPTIONS,
    }
    for name, columns in tables.items():
        fields = table(spark, server, queue="k", table=name).schema.fields
        assert [(f.name, f.metadata.get("comment")) for f in fields] == [
            (column.name, column.about) for column in columns
        ]


@pytest.mark.slow
def test_main_queues_are_a_table(spark: SparkSession, server: Server, store: Store) -> None:
    store.run(message_ops.push("a", messages(*(b"%d" % n for n in range(2500)))))
    store.run(message_ops.push("b", [b"no message"]))
    found = table(spark, server, queue="*", payload="text")
    assert found.where("key = 'a'").count() == 2500
    assert found.where("error IS NULL").selectExpr("sum(cast(value AS INT)) AS s").first().s == sum(  # type: ignore[union-attr]
        range(2500)
    )
    (wrong,) = found.where("error IS NOT NULL").collect()
    assert (wrong.key, bytes(wrong.raw), wrong.value) == ("b", b"no message", None)
    assert table(spark, server, queue="a,nobody").count() == 2500
    assert table(spark, server, queue="nobody").count() == 0


def test_payloads_of_msgpack_are_read_by_a_schema(
    spark: SparkSession, server: Server, store: Store
) -> None:
    encode = msgspec.msgpack.encode
    store.run(
        message_ops.push("k", messages(encode({"n": 1, "b": b"x"}), encode({"n": "?"}), b"\xc1"))
    )
    found = table(spark, server, queue="k", payload="msgpack", payloadSchema="n INT, b BINARY")
    good, wrong, broken = found.orderBy("position").collect()
    assert (good.value.n, bytes(good.value.b), good.error) == (1, b"x", None)
    assert good.published_at.timestamp() == 1500365704
    assert (wrong.value.n, wrong.error[:3]) == (None, "n: ")
    assert broken.value is None
    assert broken.error


def test_dedicated_queues_and_subscriptions_are_tables_in_sql(
    spark: SparkSession, server: Server, store: Store
) -> None:
    for consumer in ("c", "d"):
        store.run(message_ops.subscribe("k", consumer, P, Options()))
    store.run(message_ops.push("k", messages(b"1", b"2")))
    store.run(message_ops.dispatch("k"))
    for name in ("dedicated", "subscriptions"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING gomq "
            f"OPTIONS (url '{server.url}', queue 'k', table '{name}')"
        )
    found = spark.sql(
        "SELECT consumer, cast(payload AS STRING) AS text FROM dedicated "
        "WHERE consumer = 'c' ORDER BY position"
    ).collect()
    assert [tuple(row) for row in found] == [("c", "1"), ("c", "2")]
    rows = spark.sql("SELECT key, consumer, peer, waiting FROM subscriptions ORDER BY consumer")
    assert [tuple(row) for row in rows.collect()] == [("k", "c", P, 2), ("k", "d", P, 2)]


def test_written_rows_can_be_read_back(spark: SparkSession, server: Server) -> None:
    rows = spark.range(100).selectExpr(
        "concat('k', id % 2) AS key", "cast(id AS STRING) AS payload"
    )
    rows.write.format("gomq").options(url=server.url).mode("append").save()
    found = table(spark, server, queue="k*", payload="text").where("error IS NULL")
    assert sorted((row.key, int(row.value)) for row in found.collect()) == sorted(
        (f"k{n % 2}", n) for n in range(100)
    )


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "the option queue is missing"),
        ({"queue": "k", "ns": "x"}, "no option ns"),
        ({"queue": "k", "table": "jobs"}, "table must be one of main, dedicated, subscriptions"),
        ({"queue": "k", "table": "subscriptions", "payload": "text"}, "no payload in it"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], fault: str) -> None:
    source = GomqSource(options)
    with pytest.raises(SettingsError) as error:
        source.reader(from_arrow_schema(schemas.GOMQ_MAIN.arrow))
    assert fault in str(error.value)
