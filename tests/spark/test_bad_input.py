"""Invalid input in a real Spark: a one-line error for the caller, without any secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from tambomq.chasqui.keys import Keys
from tambomq.errors import QueueError, QueueNotFound, SettingsError, WrongType
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tambomq.spark.core import schemas
from tambomq.spark.core.source import QueueSource
from tambomq.spark.formats.chasqui.source import ChasquiSource
from tambomq.spark.formats.gomq.source import GomqSource
from tambomq.spark.formats.rsmq.source import RsmqSource
from tambomq.spark.formats.tambo.source import TamboSource
from tests.servers import Server, eventually

WITHIN_S = 120
SECRET = "sesame"
FORMATS: dict[str, type[QueueSource]] = {
    "rsmq": RsmqSource,
    "chasqui": ChasquiSource,
    "gomq": GomqSource,
    "tambo": TamboSource,
}
COLUMNS = {
    "rsmq": schemas.RSMQ_MESSAGES,
    "chasqui": schemas.CHASQUI_JOBS,
    "gomq": schemas.GOMQ_MAIN,
    "tambo": schemas.TAMBO_JOURNAL,
}
LEASED = {
    "rsmq": schemas.RSMQ_LEASED,
    "chasqui": schemas.CHASQUI_LEASED,
    "gomq": schemas.GOMQ_LEASED,
}


def read_options(source: str, options: dict[str, str]) -> dict[str, str]:
    return {"protocol": "kqueue", **options} if source == "tambo" else options


def table(spark: SparkSession, source: str, url: str, **options: str) -> DataFrame:
    return spark.read.format(source).options(url=url, **read_options(source, options)).load()


def stream(spark: SparkSession, home: Path, source: str, url: str, **options: str) -> None:
    """Stream what there is to nowhere."""
    rows = spark.readStream.format(source).options(url=url, **read_options(source, options)).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(home / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WITHIN_S)
    finally:
        query.stop()


def read_here(source: str, url: str, **options: str) -> list[Any]:
    """Read a table as Spark would, in this process."""
    made = FORMATS[source]({"url": url, **read_options(source, options)})
    reader: Any = made.reader(from_arrow_schema(COLUMNS[source].arrow))
    return [batch for part in reader.partitions() for batch in reader.read(part)]


def line(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """The error text before Spark's own part: one line, without a traceback."""
    text = str(error.value).partition("=== Streaming Query ===")[0]
    assert "Traceback" not in text
    assert "During handling" not in text
    assert ".py" not in text
    assert "org.apache" not in text
    assert SECRET not in str(error.value)
    lines = [each for each in text.splitlines() if each.strip() and "SQLSTATE" not in each[:10]]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture
def filled(server: Server, rsmq: Rsmq, db: redis.Redis) -> str:
    """The URL of a server with queues: ``empty``, and ``wrong`` with keys of another type."""
    for name in ("empty", "wrong"):
        rsmq.create_queue(name)
    for key in ("rsmq:wrong", "QUEUE_wrong"):
        db.set(key, "of another type")
    for key in (*Keys("wrong").traces, JournalKeys("kqueue", "wrong").journal):
        db.set(key, "of another type")
    return server.url


# ── tables ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "the option queue is missing"),
        ({"queue": "[]"}, "queue must be names, or a JSON list of them, not '[]'"),
        ({"queue": "q", "table": "shoes"}, "table must be one of "),
        ({"queue": "q", "partition": "2"}, "no option partition; did you mean partitions?"),
        (
            {"queue": "q", "url": "http://here"},
            "begins with redis://, rediss://, unix://, redis+sentinel://",
        ),
    ],
    ids=["no queue", "no queues", "table", "option", "url"],
)
def test_invalid_options_are_refused_by_every_format(
    source: str, options: dict[str, str], why: str
) -> None:
    made = FORMATS[source](read_options(source, options))
    schema = COLUMNS[source].arrow
    with pytest.raises(SettingsError, match=re.escape(why)):
        made.reader(from_arrow_schema(schema))


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("rsmq", {}, "SettingsError: format 'rsmq': the option queue is missing"),
        ("tambo", {"queue": "wrong"}, "WrongType: one of the keys {tambo:kqueue:wrong}:journal"),
    ],
)
def test_read_errors_are_reported_in_one_line(
    spark: SparkSession, filled: str, source: str, options: dict[str, str], why: str
) -> None:
    with pytest.raises(PySparkException) as error:
        table(spark, source, filled, **options).collect()
    assert why in line(error)


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("rsmq", "rsmq:wrong"),
        ("chasqui", "{chasqui:wrong}:stream"),
        ("gomq", "QUEUE_wrong"),
        ("tambo", "{tambo:kqueue:wrong}:journal"),
    ],
)
def test_keys_of_another_type_are_named(filled: str, source: str, key: str) -> None:
    with pytest.raises(WrongType, match=re.escape(f"one of the keys {key}")):
        read_here(source, filled, queue="wrong")


@pytest.mark.parametrize(
    ("source", "kind", "why"),
    [
        ("rsmq", QueueNotFound, "queue 'nobody' does not exist"),
        ("tambo", QueueError, "queue 'nobody' of kqueue has no journal"),
    ],
)
def test_a_queue_that_is_not_there_is_an_error_where_queues_are_made(
    filled: str, source: str, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        read_here(source, filled, queue="nobody")


@pytest.mark.parametrize("source", ["chasqui", "gomq"])
def test_a_queue_that_is_not_there_is_empty_where_queues_are_not_made(
    filled: str, source: str
) -> None:
    assert sum(batch.num_rows for batch in read_here(source, filled, queue="nobody")) == 0


def test_an_empty_queue_is_an_empty_table_and_one_named_twice_is_read_once(
    filled: str, rsmq: Rsmq
) -> None:
    queues = '["empty", "empty", "empt*"]'
    assert sum(batch.num_rows for batch in read_here("rsmq", filled, queue=queues)) == 0
    rsmq.send_message("empty", "x")
    assert sum(batch.num_rows for batch in read_here("rsmq", filled, queue=queues)) == 1


def test_the_columns_of_a_table_are_its_own(spark: SparkSession, filled: str) -> None:
    asked = spark.read.format("rsmq").options(url=filled, queue="empty").schema("id STRING")
    with pytest.raises(PySparkException) as error:
        asked.load().collect()
    assert "its columns are fixed: leave schema() out" in line(error)
    same = "queue STRING, id INT, body BINARY, sent_at TIMESTAMP, visible_at TIMESTAMP"
    asked = asked.schema(f"{same}, state STRING, rc INT, first_received_at TIMESTAMP")
    with pytest.raises(PySparkException) as error:
        asked.load().collect()
    assert "its columns are fixed" in line(error)


def test_an_undecodable_entry_is_a_row_with_an_error_or_is_skipped(
    spark: SparkSession, server: Server, db: redis.Redis
) -> None:
    db.xadd(Keys("q").stream, {"d": b"\xc1"})
    db.rpush("QUEUE_q", b"no json")
    for source in ("chasqui", "gomq"):
        [row] = table(spark, source, server.url, queue="q").collect()
        assert (row.payload, bool(row.error)) == (None, True)
        assert bytes(row.raw) in (b"\xc1", b"no json")
    assert table(spark, "chasqui", server.url, queue="q", damaged="skip").collect() == []


@pytest.mark.slow
def test_a_payload_that_does_not_parse_keeps_its_bytes(
    spark: SparkSession, filled: str, rsmq: Rsmq, tmp_path: Path
) -> None:
    rsmq.send_messages("empty", ['{"n": 1}', "{", '{"n": "one"}', b"\xff"])
    options = {"queue": "empty", "payload": "json", "payloadSchema": "n INT"}
    rows = table(spark, "rsmq", filled, **options).orderBy("id").collect()
    assert [bytes(row.body) for row in rows] == [b'{"n": 1}', b"{", b'{"n": "one"}', b"\xff"]
    assert [bool(row.error) for row in rows] == [False, True, True, True]
    assert [row.value and row.value.n for row in rows] == [1, None, None, None]
    stream(spark, tmp_path, "rsmq", filled, lease="l", **options)


# ── streams ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("rsmq", {"queue": "empty", "lease": "l", "table": "queues"}, "table must be messages"),
        (
            "rsmq",
            {"queue": "e*", "lease": "l"},
            "queue must be a single queue, since a lease is for one",
        ),
        ("rsmq", {"queue": "empty", "lease": "l", "leaseSeconds": "0"}, "leaseSeconds must be a"),
        ("chasqui", {"queue": "q", "lease": "l", "table": "events"}, "table must be jobs where"),
        ("chasqui", {"queue": "q", "lease": "l", "damaged": "skip"}, "damaged must be show where"),
        ("gomq", {"queue": "q"}, "the option lease is missing: a stream consumes"),
        ("tambo", {"queue": "q", "startingOffsets": "soon"}, "startingOffsets must be earliest"),
        ("tambo", {"queue": "q", "lease": "l"}, "no option lease"),
    ],
)
def test_invalid_options_of_a_stream_are_refused_by_every_format(
    source: str, options: dict[str, str], why: str
) -> None:
    columns = LEASED[source] if "lease" in options and source in LEASED else COLUMNS[source]
    made = FORMATS[source](read_options(source, options))
    reader: Any = made.streamReader(from_arrow_schema(columns.arrow))
    for ask in (reader.prepareForTriggerAvailableNow, reader.initialOffset):
        with pytest.raises(SettingsError, match=why):
            ask()
    reader.stop()


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        ("rsmq", {"queue": "empty"}, "the option lease is missing: a stream consumes"),
        ("chasqui", {"queue": "wrong", "table": "events"}, "holds a value of another type"),
    ],
)
def test_stream_errors_are_reported_in_one_line(
    spark: SparkSession,
    filled: str,
    tmp_path: Path,
    source: str,
    options: dict[str, str],
    why: str,
) -> None:
    with pytest.raises(PySparkException) as error:
        stream(spark, tmp_path, source, filled, **options)
    assert why in line(error)


def test_a_lease_of_another_query_is_reported_with_its_holder(
    spark: SparkSession, filled: str, db: redis.Redis, tmp_path: Path
) -> None:
    db.hset("rsmq:empty:lease:l", mapping={"owner": "x", "label": "the night shift"})
    db.hset("rsmq:empty:lease:l", "until", 2**50)

    # A lease that is renewed is seen by its time, which goes on.
    def is_refused(query: StreamingQuery) -> bool:
        db.hincrby("rsmq:empty:lease:l", "until", 1)
        return not query.isActive

    rows = spark.readStream.format("rsmq").options(url=filled, queue="empty", lease="l").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: is_refused(query), within_s=WITHIN_S)
        with pytest.raises(PySparkException) as error:
            query.awaitTermination(WITHIN_S)
    finally:
        query.stop()
    assert "LeaseTaken: lease 'l' on queue 'empty' is held by the night shift" in line(error)


# ── servers ──────────────────────────────────────────────────────────────────


@pytest.fixture
def nowhere() -> str:
    return f"redis://:{SECRET}@127.0.0.1:1"


@pytest.fixture
def guarded(private_server: Server) -> str:
    """The URL of a server with another password than it says."""
    with redis.Redis.from_url(private_server.url) as admin:
        admin.config_set("requirepass", "other")
    return private_server.url.replace("redis://", f"redis://:{SECRET}@")


@pytest.mark.slow
def test_a_wrong_password_is_reported_and_not_shown(
    spark: SparkSession, guarded: str, tmp_path: Path
) -> None:
    asked = table(spark, "rsmq", guarded, queue="q")
    assert SECRET not in plans(asked)
    with pytest.raises(PySparkException) as error:
        asked.collect()
    assert "StoreRefused: redis://127.0.0.1:" in line(error)
    with pytest.raises(PySparkException) as error:
        stream(spark, tmp_path, "rsmq", guarded, queue="q", lease="l")
    assert "StoreRefused: redis://127.0.0.1:" in line(error)
    assert SECRET not in shown(spark)


@pytest.mark.slow
def test_a_server_that_is_down_is_reported_when_the_read_is_planned(
    spark: SparkSession, nowhere: str
) -> None:
    with pytest.raises(PySparkException) as error:
        table(spark, "chasqui", nowhere, queue="q*").collect()
    assert "StoreUnavailable: cannot reach redis://127.0.0.1:1/0" in line(error)


def test_a_view_made_in_sql_shows_no_password(spark: SparkSession, guarded: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING rsmq OPTIONS (url '{guarded}', queue 'q')")
    with pytest.raises(PySparkException) as error:
        spark.sql("SELECT * FROM v").collect()
    assert "WRONGPASS" in line(error)
    assert SECRET not in plans(spark.table("v"))
    assert SECRET not in str(spark.sql("DESCRIBE EXTENDED v").collect())
    spark.catalog.dropTempView("v")
    assert SECRET not in shown(spark)


def plans(rows: DataFrame) -> str:
    """What ``explain(True)`` shows."""
    text: str = rows._jdf.queryExecution().toString()
    return text


def shown(spark: SparkSession) -> str:
    """What Spark's web page shows of all that was run."""
    session: Any = spark._jsparkSession
    runs = session.sharedState().statusStore().executionsList()
    texts = [runs.apply(index) for index in range(runs.size())]
    return "\n".join(
        f"{run.description()} {run.details()} {run.physicalPlanDescription()} {run.errorMessage()}"
        for run in texts
    )
