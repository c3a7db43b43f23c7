"""Streams of Spark into each kind of queue: every row once, fences no more than are needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire
from tambomq.journal.keys import JournalKeys
from tambomq.rsmq import Rsmq
from tests.chasqui.stored import jobs
from tests.servers import Server, binaries
from tests.spark import sampling
from tests.spark.sinking import BODY, NEEDED, SINKS

LINES = 1500
Found = Callable[[redis.Redis], list[str]]


def messages(db: redis.Redis) -> list[str]:
    with Rsmq(url_of(db)) as rsmq:
        return [message.text for message in rsmq.peek_messages("q", 100_000)]


def payloads(db: redis.Redis) -> list[str]:
    return [decode_payload(job.payload) for _, job in jobs(db, ChasquiKeys("q"))]


def elements(db: redis.Redis) -> list[str]:
    found = cast("list[bytes]", db.lrange(gomq_keys.queue("q"), 0, -1))
    return [wire.decode(each).payload.decode() for each in found]


def entries(db: redis.Redis) -> list[str]:
    found = cast("Any", db.xrange(JournalKeys("rsmq", "q").journal))
    return [fields[b"d"].decode() for _, fields in found]


FOUND: dict[str, Found] = {
    "rsmq": messages,
    "chasqui": payloads,
    "gomq": elements,
    "tambo": entries,
}


def url_of(db: redis.Redis) -> str:
    known = db.connection_pool.connection_kwargs
    return f"redis://{known['host']}:{known['port']}"


def run(spark: SparkSession, source: str, url: str, home: Path, **options: Any) -> StreamingQuery:
    """Write the lines of the files in *home*, one file in each batch."""
    lines = spark.readStream.schema("line STRING").option("maxFilesPerTrigger", 1)
    rows = lines.text(f"{home}/in").selectExpr(f"line AS {BODY[source]}")
    writing = rows.writeStream.format(source).option("checkpointLocation", f"{home}/checkpoint")
    writing = writing.options(url=url, queue="q", **NEEDED.get(source, {}), **options)
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def fill(home: Path, files: int) -> list[str]:
    (home / "in").mkdir(exist_ok=True)
    for file in range(files):
        path = home / "in" / f"{file}.txt"
        path.write_text("".join(f"{file}-{line}\n" for line in range(LINES)))
        # Spark takes the oldest first.
        os.utime(path, (1_700_000_000 + file,) * 2)
    return [f"{file}-{line}" for file in range(files) for line in range(LINES)]


def tokens(db: redis.Redis) -> set[bytes]:
    """What stands in the one fence there is."""
    [fence] = [key for key in db.scan_iter(_type="hash") if b"fence" in key.lower()]
    assert 0 < db.ttl(fence) <= 7 * 24 * 3600
    return set(cast("Any", db.hkeys(fence)))


@pytest.mark.slow
@pytest.mark.parametrize("source", sampling.some("streams into", [*SINKS], 2))
def test_a_stream_writes_each_row_once_though_it_is_started_again_with_the_same_batch(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path, source: str
) -> None:
    with Rsmq(server.url) as rsmq:
        rsmq.create_queue("q")
    expected = fill(tmp_path, 3)
    run(spark, source, server.url, tmp_path)
    assert sorted(FOUND[source](db)) == sorted(expected)
    assert tokens(db) == {b"2/0/0", b"2/0/1", b"floor"}
    # As if the driver had died before it wrote down that the last batch is done.
    (tmp_path / "checkpoint/commits/2").unlink()
    (tmp_path / "checkpoint/commits/.2.crc").unlink(missing_ok=True)
    expected = fill(tmp_path, 4)
    query = run(spark, source, server.url, tmp_path)
    assert [progress.batchId for progress in query.recentProgress] == [2, 3]
    assert sorted(FOUND[source](db)) == sorted(expected)
    assert tokens(db) == {b"3/0/0", b"3/0/1", b"floor"}


def test_a_checkpoint_that_is_an_old_copy_writes_nothing_again(
    spark: SparkSession, server: Server, db: redis.Redis, tmp_path: Path
) -> None:
    fill(tmp_path, 1)
    run(spark, "gomq", server.url, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    expected = fill(tmp_path, 4)
    run(spark, "gomq", server.url, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "copy", tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="is closed, since later ones of this query"):
        run(spark, "gomq", server.url, tmp_path)
    assert sorted(FOUND["gomq"](db)) == sorted(expected)


@pytest.mark.slow
def test_a_stream_ends_with_its_server_and_resumes_when_it_is_back(
    spark: SparkSession, private_server: Server, tmp_path: Path
) -> None:
    expected = fill(tmp_path, 2)
    run(spark, "chasqui", private_server.url, tmp_path)
    private_server.kill()
    expected = fill(tmp_path, 3)
    with pytest.raises(StreamingQueryException, match="cannot reach"):
        run(spark, "chasqui", private_server.url, tmp_path)
    private_server.restart()
    run(spark, "chasqui", private_server.url, tmp_path)
    with redis.Redis.from_url(private_server.url) as db:
        assert sorted(FOUND["chasqui"](db)) == sorted(expected)


@pytest.mark.slow
def test_rows_are_inserted_by_sql(spark: SparkSession, server: Server, db: redis.Redis) -> None:
    with Rsmq(server.url) as rsmq:
        rsmq.create_queue("q")
    for source in SINKS:
        options = {"url": server.url, "queue": "q", **NEEDED.get(source, {})}
        given = ", ".join(f"{name} '{value}'" for name, value in options.items())
        view = f"to_queue ({BODY[source]} STRING) USING {source} OPTIONS ({given})"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view}")
        spark.sql("INSERT INTO to_queue VALUES ('a'), ('b')")
        spark.sql("INSERT INTO to_queue SELECT CAST(id AS STRING) FROM range(2)")
        assert sorted(FOUND[source](db)) == ["0", "1", "a", "b"]
        with pytest.raises(PySparkException, match="rows can only be appended: use mode append"):
            spark.sql("INSERT OVERWRITE to_queue VALUES ('a')")
        assert len(FOUND[source](db)) == 4
    spark.catalog.dropTempView("to_queue")


@pytest.mark.slow
def test_large_bodies_go_both_ways(spark: SparkSession, server: Server) -> None:
    with Rsmq(server.url) as rsmq:
        rsmq.create_queue("q", maxsize=-1)
    for source in SINKS:
        options = {"url": server.url, "queue": "q", **NEEDED.get(source, {})}
        more = {"maxMessageBytes": 32 << 20} if source == "gomq" else {}
        rows = spark.sql(f"SELECT repeat('x', 16 * 1024 * 1024) AS {BODY[source]}")
        rows.write.format(source).options(**options, **more).mode("append").save()
        found = spark.read.format(source).options(**options).load()
        # The length of the text, and for jobs what MessagePack says of it before.
        [row] = found.selectExpr(f"length({BODY[source]}) AS length").collect()
        assert row.length == (16 << 20) + (5 if source == "chasqui" else 0)


@pytest.mark.slow
def test_write_errors_are_reported_in_one_line_without_a_password(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, 1)
    texts = []
    with Server(binaries.valkey(), password="hush-hush") as server:
        wrong = f"redis://:hush-nobody@127.0.0.1:{server.port}"
        for source in SINKS:
            rows = spark.sql(f"SELECT 'a' AS {BODY[source]}").write.format(source)
            rows = rows.options(url=wrong, queue="q", **NEEDED.get(source, {}))
            for mode, fault in (
                ("append", "WRONGPASS"),
                ("overwrite", "rows can only be appended: use mode append"),
                ("error", "cannot be written in the"),
            ):
                with pytest.raises(PySparkException, match=fault) as refused:
                    rows.mode(mode).save()
                texts.append(str(refused.value))
        with pytest.raises(StreamingQueryException, match="WRONGPASS") as failed:
            run(spark, "gomq", wrong, tmp_path)
        texts.append(str(failed.value))
        away = server.url
    rows = spark.sql("SELECT 'a' AS payload").write.format("gomq").options(url=away, queue="q")
    with pytest.raises(PySparkException, match="cannot reach") as refused:
        rows.mode("append").save()
    texts.append(str(refused.value))
    # What Spark's own page would show.
    java: Any = spark._jsparkSession
    shown = java.sharedState().statusStore().executionsList()
    texts += [shown.apply(index).toString() for index in range(shown.size())]
    assert "hush" not in "".join(texts)
