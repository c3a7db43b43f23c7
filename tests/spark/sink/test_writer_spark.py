"""Rows written by Spark become messages, in batches and streams; invalid ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import SettingsError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.rsmq import Rsmq
from tests.chasqui.stored import delayed, jobs
from tests.journal.looking import bodies as recorded
from tests.servers import Server
from tests.spark import sinking


def save(rows: DataFrame, source: str, server: Server, **options: Any) -> None:
    rows.write.format(source).options(url=server.url, **options).mode("append").save()


def bodies(client: Rsmq) -> list[bytes]:
    return sorted(message.body for message in client.peek_messages("q", 100_000))


def test_ten_thousand_rows_are_written_once_each(
    spark: SparkSession, rsmq: Rsmq, server: Server
) -> None:
    rsmq.create_queue("q")
    rows = spark.range(10_000, numPartitions=3).selectExpr("CAST(id AS STRING) AS body")
    save(rows, "rsmq", server, queue="q")
    assert bodies(rsmq) == sorted(b"%d" % n for n in range(10_000))
    assert rsmq.get_queue_attributes("q").totalsent == 10_000


def test_rows_go_to_the_queues_they_name_and_wait_as_they_say(
    spark: SparkSession, rsmq: Rsmq, server: Server
) -> None:
    for name in ("q", "other"):
        rsmq.create_queue(name)
    rows = spark.sql(
        "SELECT * FROM VALUES (X'00FF', 'other', 0), (X'01', NULL, 600) AS t(body, queue, delay_s)"
    )
    save(rows, "rsmq", server, queue="q")
    [message] = rsmq.receive_messages("other", 2)
    assert message.body == b"\x00\xff"
    assert rsmq.get_queue_stats("q").delayed == 1


def test_structs_become_jobs(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    rows = spark.sql(
        "SELECT named_struct('to', CONCAT('u', id), 'tags', map('n', id)) AS data, 'mail' AS name,"
        " CONCAT('job-', id) AS id, IF(id = 1, now() + INTERVAL 1 DAY, NULL) AS run_at,"
        " 3 AS attempts, 500L AS backoff FROM range(2)"
    )
    save(rows, "chasqui", server, queue="q")
    keys = ChasquiKeys("q")
    [(name, job)] = jobs(db, keys)
    assert (name, job.id, job.payload) == (
        "mail",
        "job-0",
        b"\x82\xa2to\xa2u0\xa4tags\x81\xa1n\x00",
    )
    assert job.retry is not None
    assert job.retry.backoff is not None
    assert (job.retry.max_attempts, job.retry.backoff.delay_ms) == (3, 500)
    assert [each.id for _, each, _ in delayed(db, keys)] == ["job-1"]


def test_rows_become_gomq_messages(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    rows = spark.range(2000, numPartitions=1).selectExpr("CAST(id AS STRING) AS payload")
    save(rows, "gomq", server, key="FOO")
    found: Any = db.lrange(gomq_keys.queue("FOO"), 0, -1)
    assert [wire.decode(each).payload for each in found] == [b"%d" % n for n in range(2000)]


def test_written_rows_are_journalled_on_request(
    spark: SparkSession, rsmq: Rsmq, server: Server
) -> None:
    rsmq.create_queue("q")
    rows = spark.range(2500, numPartitions=2).selectExpr("CAST(id AS STRING) AS body")
    save(rows, "rsmq", server, queue="q", journal=True)
    assert sorted(map(str, recorded(server.url, "rsmq", "q"))) == sorted(map(str, bodies(rsmq)))
    with pytest.raises(PySparkException, match="the journal of queue 'q' is full"):
        save(rows, "rsmq", server, queue="q", journal=True, journalMaxEntries=2600)
    assert len(bodies(rsmq)) == 2500
    for source in ("chasqui", "gomq"):
        save(rows.selectExpr("body AS payload"), source, server, queue="q", journal="true")
        assert len(recorded(server.url, source, "q")) == 2500


@pytest.mark.parametrize(
    ("query", "options", "fault"),
    [
        ("SELECT 'a' AS bdy", {"queue": "q"}, "no column bdy; there are body, queue, delay_s"),
        ("SELECT 'a' AS body", {"queue": "none"}, "queue 'none' does not exist"),
    ],
)
def test_an_invalid_write_is_refused_in_one_line(
    spark: SparkSession,
    rsmq: Rsmq,
    server: Server,
    query: str,
    options: dict[str, Any],
    fault: str,
) -> None:
    rsmq.create_queue("q")
    with pytest.raises(PySparkException, match=fault) as error:
        save(spark.sql(query), "rsmq", server, **options)
    assert "Traceback" not in str(error.value)
    assert bodies(rsmq) == []


@pytest.mark.parametrize(
    ("rows", "options", "fault"),
    [
        ({"body": [1]}, {"queue": "q"}, "column body must be STRING or BINARY, not BIGINT"),
        ({"body": ["a"]}, {}, "neither an option nor a column queue says where rows go"),
        ({"body": ["a"]}, {"queue": "q", "tabel": "1"}, "no option tabel"),
    ],
)
def test_rows_and_options_that_do_not_fit_are_reported(
    rows: dict[str, Any], options: dict[str, str], fault: str
) -> None:
    with pytest.raises(SettingsError, match=fault):
        sinking.sink("rsmq", sinking.table(**rows), **options)


def test_a_row_that_cannot_be_written_fails_its_chunk(
    spark: SparkSession, rsmq: Rsmq, server: Server
) -> None:
    rsmq.create_queue("q")
    rows = spark.sql("SELECT * FROM VALUES ('a'), (NULL) AS t(body)").coalesce(1)
    with pytest.raises(PySparkException, match="row 1: body is null"):
        save(rows, "rsmq", server, queue="q")
    assert bodies(rsmq) == []
    save(rows, "rsmq", server, queue="q", onError="skip")
    assert bodies(rsmq) == [b"a"]


def test_rows_are_not_overwritten(spark: SparkSession, server: Server) -> None:
    rows = spark.sql("SELECT 'a' AS body").write.format("rsmq").options(url=server.url, queue="q")
    with pytest.raises(PySparkException, match="can only be appended"):
        rows.mode("overwrite").save()


@pytest.mark.slow
def test_a_stream_writes_its_rows_and_prunes_the_fences_of_old_batches(
    spark: SparkSession, rsmq: Rsmq, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    rsmq.create_queue("q")
    for number in range(3):
        (tmp_path / "in" / str(number)).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}\n")
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 1)
    for _ in range(2):
        writing = rows.text(f"{tmp_path}/in").writeStream.format("rsmq").queryName("writes")
        writing = writing.option("checkpointLocation", f"{tmp_path}/checkpoint")
        writing = writing.options(url=server.url, queue="q").trigger(availableNow=True)
        writing.start().awaitTermination()
    assert bodies(rsmq) == [b"0", b"1", b"2"]
    [fence] = db.scan_iter("*:fence:*")
    assert set(db.hkeys(fence)) == {b"2/0/0", b"floor"}


def test_a_write_that_has_a_name_is_made_once(
    spark: SparkSession, rsmq: Rsmq, server: Server
) -> None:
    rsmq.create_queue("q")
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS body").coalesce(1)
    for _ in range(2):
        save(rows, "rsmq", server, queue="q", run="query-7")
    assert len(bodies(rsmq)) == 10
