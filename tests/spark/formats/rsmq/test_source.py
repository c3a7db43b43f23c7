"""The format ``rsmq`` in a real Spark: what a user sees, also when something is wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tambomq.errors import TamboError
from tambomq.rsmq import Rsmq
from tambomq.spark.core import schemas
from tambomq.spark.formats.rsmq.source import RsmqSource
from tests.servers import Server


@pytest.fixture
def queue(rsmq: Rsmq) -> Rsmq:
    rsmq.create_queue("q", maxsize=-1)
    return rsmq


def table(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.read.format("rsmq").options(url=url, **options).load()


def reason(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What the user reads first."""
    text = str(error.value)
    assert "Traceback" not in text
    assert ".py" not in text
    return text


def test_columns_have_their_comments(spark: SparkSession, server: Server, queue: Rsmq) -> None:
    for name, columns in (("messages", schemas.RSMQ_MESSAGES), ("queues", schemas.RSMQ_QUEUES)):
        fields = table(spark, server.url, queue="q", table=name).schema.fields
        assert [(f.name, f.metadata.get("comment")) for f in fields] == [
            (column.name, column.about) for column in columns
        ]


def test_messages_are_rows_in_sql(spark: SparkSession, server: Server, queue: Rsmq) -> None:
    queue.send_messages("q", [f"{n}" for n in range(3000)])
    queue.send_message("q", "later", delay=60)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW mail USING rsmq OPTIONS (url '{server.url}', queue '*')"
    )
    states = spark.sql("SELECT state, count(*) FROM mail GROUP BY state ORDER BY state").collect()
    assert [tuple(row) for row in states] == [("delayed", 1), ("visible", 3000)]
    (row,) = spark.sql(
        "SELECT queue, cast(body AS STRING) AS text FROM mail WHERE state='delayed'"
    ).collect()
    assert (row.queue, row.text) == ("q", "later")


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_the_same_rows_whether_pushed_or_not(
    spark: SparkSession, server: Server, queue: Rsmq, db: redis.Redis, pushdown: str
) -> None:
    start = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    base = int(start.timestamp() * 1000)
    db.zadd("rsmq:q", {f"{n:05}": base + n for n in range(100)})
    db.hset("rsmq:q:Q", mapping={f"{n:05}": n for n in range(100)})
    messages = table(spark, server.url, queue="q", pushdown=pushdown)
    for n in (0, 57):
        at = start + timedelta(milliseconds=n)
        assert [r.id for r in messages.where(messages.visible_at == at).collect()] == [f"{n:05}"]
        assert messages.where(messages.visible_at >= at).count() == 100 - n
        assert messages.where(messages.visible_at < at).count() == n


@pytest.mark.slow
def test_every_query_on_one_table_gets_its_own_rows(
    spark: SparkSession, server: Server, queue: Rsmq
) -> None:
    queue.create_queue("other")
    everything = table(spark, server.url, queue="*")
    assert everything.count() == 0
    queue.send_messages("q", ["x"] * 3)
    queue.send_messages("other", ["y"] * 4)
    mine, others = everything.where("queue = 'q'"), everything.where("queue = 'other'")
    assert (mine.count(), everything.count(), others.count()) == (3, 7, 4)
    both = mine.union(others).groupBy("queue").count().collect()
    assert sorted(tuple(row) for row in both) == [("other", 4), ("q", 3)]
    assert mine.crossJoin(others).count() == 12


def test_a_filter_that_is_pushed_down_keeps_from_other_queues(
    spark: SparkSession, server: Server, queue: Rsmq, db: redis.Redis
) -> None:
    queue.send_message("q", "x")
    queue.create_queue("damaged")
    db.set("rsmq:damaged", "of another type")
    pushed = table(spark, server.url, queue="*", pushdown="true")
    assert pushed.where("queue = 'q' AND state = 'visible'").count() == 1
    with pytest.raises(PySparkException) as error:
        table(spark, server.url, queue="*").where("queue = 'q'").count()
    assert "rsmq:damaged" in reason(error)


def test_bodies_are_read_by_a_schema(spark: SparkSession, server: Server, queue: Rsmq) -> None:
    queue.send_messages(
        "q",
        [
            '{"id":1, "at":"2024-05-06T07:08:09Z", "tags":["a"], "to":{"zip":5}, "m":{"k":1.5}}',
            '{"id": "x", "at": 1714979289123}',
            "{",
        ],
    )
    schema = (
        "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, to: STRUCT<zip: INT>, m MAP<STRING, DOUBLE>"
    )
    found = table(spark, server.url, queue="q", payload="json", payloadSchema=schema)
    good, wrong, broken = found.orderBy("id").collect()
    assert good.value.asDict(recursive=True) == {
        "id": 1,
        "at": good.value.at,
        "tags": ["a"],
        "to": {"zip": 5},
        "m": {"k": 1.5},
    }
    assert good.value.at.timestamp() == 1714979289
    assert good.error is None
    assert (wrong.value.id, wrong.value.at.timestamp()) == (None, 1714979289.123)
    assert wrong.error.startswith("id: ")
    assert broken.value is None
    assert (bytes(broken.body), bool(broken.error)) == (b"{", True)
    assert found.where("value.id = 1").count() == 1
    assert found.where("error IS NOT NULL").count() == 2


def test_bodies_without_a_schema_are_json_text(
    spark: SparkSession, server: Server, queue: Rsmq
) -> None:
    queue.send_message("q", '{"a": 1}')
    found = table(spark, server.url, queue="q", payload="json")
    assert found.selectExpr("get_json_object(value, '$.a') AS a").collect()[0].a == "1"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"queue": "q", "tabel": "x"}, "no option tabel; did you mean table?"),
        ({"queue": "unknown"}, "unknown"),
        ({"queue": "no name"}, "queue name 'no name' is not valid"),
        (
            {"queue": "q", "payload": "json", "payloadSchema": "a INT NOT NULL"},
            "value.a cannot be NOT NULL",
        ),
        ({"queue": "q", "payload": "json", "payloadSchema": "a INTT"}, "INTT"),
    ],
)
def test_a_wrong_option_is_reported_in_a_line(
    spark: SparkSession, server: Server, queue: Rsmq, options: dict[str, str], fault: str
) -> None:
    with pytest.raises(PySparkException) as error:
        table(spark, server.url, **options).collect()
    assert fault in reason(error)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "the option queue is missing"),
        ({"queue": "q", "table": "jobs"}, "table must be one of messages, queues, not 'jobs'"),
        ({"queue": "q", "partitions": "0"}, "partitions must be a whole number"),
        ({"queue": "q", "payload": "xml"}, "payload must be one of bytes, text, json, msgpack"),
        ({"queue": "q", "table": "queues", "payload": "json"}, "no body in it"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], fault: str) -> None:
    source = RsmqSource(options)
    with pytest.raises(TamboError) as error:
        source.reader(from_arrow_schema(schemas.RSMQ_MESSAGES.arrow))
    assert fault in str(error.value)


def test_an_invalid_url_is_reported_without_its_password(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as error:
        table(spark, "redis://:sesame@here:now", queue="q").collect()
    assert "sesame" not in reason(error)


@pytest.mark.slow
def test_a_server_that_dies_mid_read_ends_the_query(
    spark: SparkSession, private_server: Server
) -> None:
    with Rsmq(private_server.url) as client:
        client.create_queue("q")
        client.send_messages("q", ["x"] * 4000)
    with redis.Redis.from_url(private_server.url) as admin:
        admin.config_set("requirepass", "sesame")
    url = private_server.url.replace("redis://", "redis://:sesame@")
    rows = table(spark, url, queue="q", partitions=4).toLocalIterator()
    next(rows)
    private_server.kill()
    with pytest.raises(Exception, match="StoreUnavailable") as error:
        list(rows)
    assert "sesame" not in str(error.value)
