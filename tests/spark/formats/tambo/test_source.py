"""The format ``tambo`` in Spark itself: journals read, asked by SQL, and followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from tambomq.errors import SettingsError
from tambomq.spark.core import schemas
from tambomq.spark.formats.tambo.source import TamboSource
from tambomq.spark.tail.offsets import lag_ms
from tests.servers import Server, eventually
from tests.spark.tail_job import committed
from tests.spark.tailing import PROTOCOL, fill, key, spread

WITHIN_S = 40


def read(spark: SparkSession, server: Server, queue: str = "q", **options: Any) -> DataFrame:
    return spark.read.format("tambo").options(**source_options(server, queue, **options)).load()


def source_options(server: Server, queue: str = "q", **options: Any) -> dict[str, Any]:
    return {"url": server.url, "protocol": PROTOCOL, "queue": queue, **options}


def follow(
    spark: SparkSession, server: Server, name: str, home: Path, *, once: bool, **options: Any
) -> StreamingQuery:
    source = spark.readStream.format("tambo").options(**source_options(server, **options)).load()
    writer = source.writeStream.queryName(name).format("parquet" if once else "memory")
    if once:
        writer = writer.option("path", str(home / "out"))
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", str(home / "checkpoint")).start()


@pytest.fixture
def query_name(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.node.name
    yield name
    for query in spark.streams.active:
        query.stop()
    spark.catalog.dropTempView(name)


# ── read ─────────────────────────────────────────────────────────────────────


def test_a_journal_is_a_table(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    fields: Any = {"e": "sent", "id": "m1", "ts": "1700000000123", "n": "mail", "delay_ms": "5"}
    fields |= {"a": "2", "to": "3", "r": "too often"}
    db.xadd(key("q"), {**fields, "d": b"\xff\x00"}, id="1700000000500-3")
    frame = read(spark, server)
    assert frame.columns == schemas.TAMBO_JOURNAL.arrow.names
    [row] = frame.collect()
    assert row.asDict() == {
        "protocol": PROTOCOL,
        "queue": "q",
        "entry_id": "1700000000500-3",
        "recorded_at": _time(1700000000500),
        "event": "sent",
        "id": "m1",
        "at": _time(1700000000123),
        "name": "mail",
        "delay_ms": 5,
        "attempt": 2,
        "targets": 3,
        "reason": "too often",
        "body": bytearray(b"\xff\x00"),
    }


def test_entries_of_others_show_as_far_as_they_can(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    db.xadd(key("q"), {"ts": "soon", "delay_ms": "9" * 30, "n": b"\xff"})
    [row] = read(spark, server).collect()
    assert (row.at, row.delay_ms, row.event, row.id, row.body) == (None, None, None, None, None)
    assert row["name"] == "\ufffd"


def test_sql_reads_all_journals_and_only_the_time_range(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    for queue in ("a", "b"):
        fill(db, queue, range(3000), ids=spread(1_700_000_000_000, 1000))
    pairs = ", ".join(f"'{k}' '{v}'" for k, v in source_options(server, "*").items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW journal USING tambo OPTIONS ({pairs})")
    asked = "SELECT queue, count(*) n, count(DISTINCT entry_id) d FROM journal "
    found = spark.sql(asked + "GROUP BY queue ORDER BY queue").collect()
    assert [tuple(row) for row in found] == [("a", 3000, 3000), ("b", 3000, 3000)]
    when = "WHERE recorded_at >= TIMESTAMP '2023-11-14 22:13:30Z' "
    found = spark.sql(asked + when + "AND queue = 'b' GROUP BY queue").collect()
    assert [tuple(row) for row in found] == [("b", 2990, 2990)]
    spark.catalog.dropTempView("journal")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"protocol": "amqp"}, "protocol must be one of rsmq, chasqui, gomq, kqueue"),
        ({"table": "jobs"}, "table must be one of journal"),
        ({"maxRows": "5"}, "did you mean maxRowsPerBatch"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], said: str) -> None:
    source = TamboSource({"protocol": PROTOCOL, "queue": "q", **options})
    with pytest.raises(SettingsError, match=said):
        source.reader(from_arrow_schema(schemas.TAMBO_JOURNAL.arrow))


def test_a_missing_journal_is_reported_in_one_line(spark: SparkSession, server: Server) -> None:
    with pytest.raises(PySparkException, match="queue 'nobody' of kqueue has no") as caught:
        read(spark, server, "nobody").collect()
    assert 'File "' not in str(caught.value)


def test_a_protocol_is_needed(spark: SparkSession, server: Server) -> None:
    frame = spark.read.format("tambo").option("url", server.url).option("queue", "q")
    with pytest.raises(AnalysisException, match="the option protocol is missing"):
        frame.load()


def test_journalled_bodies_are_decoded_by_a_schema(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    fill(db, "q", ['{"total": 12}', "no json"])
    frame = read(spark, server, payload="json", payloadSchema="total INT")
    rows = frame.orderBy("entry_id").select("value.total", "error").collect()
    assert rows[0].total == 12
    assert rows[1].total is None
    assert rows[1].error


# ── followed ─────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_existing_entries_are_read_in_batches_of_bounded_size(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path, query_name: str
) -> None:
    fill(db, "q", range(1000))
    limits = {"maxRowsPerBatch": "300", "exactRows": "true"}
    query = follow(spark, server, query_name, tmp_path, once=True, **limits)
    assert query.awaitTermination(WITHIN_S)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes == [300, 300, 300, 100]
    assert len(set(committed(tmp_path))) == 1000


@pytest.mark.slow
def test_a_running_query_gets_what_comes_and_shows_how_far_it_is(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path, query_name: str
) -> None:
    fill(db, "q", range(10))
    query = follow(spark, server, query_name, tmp_path, once=False, startingOffsets="latest")
    eventually(lambda: query.lastProgress is not None, within_s=WITHIN_S)
    fill(db, "q", range(10, 30))
    eventually(lambda: spark.table(query_name).count() == 20, within_s=WITHIN_S)
    source = query.recentProgress[-1].sources[0]
    end, latest = _json(source.endOffset), _json(source.latestOffset)
    assert latest["q"]["added"] >= end["q"]["added"]
    assert lag_ms(end, latest) >= 0


@pytest.mark.slow
def test_a_trimmed_gap_ends_the_query_with_what_to_do(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path, query_name: str
) -> None:
    fill(db, "q", range(100))
    assert follow(spark, server, query_name, tmp_path, once=True).awaitTermination(WITHIN_S)
    fill(db, "q", range(100, 200))
    db.xtrim(key("q"), maxlen=60, approximate=False)
    query = follow(spark, server, query_name, tmp_path, once=True)
    said = r"at least 40 entries .* failOnDataLoss to false"
    with pytest.raises(PySparkException, match=said) as caught:
        query.awaitTermination(WITHIN_S)
    assert 'File "' not in str(caught.value)
    query = follow(spark, server, query_name, tmp_path, once=True, failOnDataLoss="false")
    assert query.awaitTermination(WITHIN_S)
    assert len(committed(tmp_path)) == 160
    assert _json(query.recentProgress[-1].sources[0].endOffset)["q"]["lost"] == 40


def _json(value: Any) -> dict[str, Any]:

    found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
    return found


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)
