"""Rows of Spark become entries of a journal: an import of events that were recorded elsewhere.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.journal import JournalReader
from tambomq.spark import session

QUEUE = "example-write"


def at_once(spark: SparkSession, url: str) -> None:
    # What a log has, row by row: when, what, of which message.
    past = spark.sql("""
        SELECT concat('order ', id) AS body,
               CAST(id AS STRING) AS id,
               timestamp'2026-01-01 09:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) AS at
        FROM range(1000)
    """)
    rows = past.write.format("tambo").options(url=url, protocol="rsmq", queue=QUEUE)
    rows.mode("append").save()

    # In SQL: a view with the columns to be written.
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW later (body STRING, event STRING, id STRING) USING tambo "
        f"OPTIONS (url '{url}', protocol 'rsmq', queue '{QUEUE}')"
    )
    spark.sql("INSERT INTO later VALUES (NULL, 'received', '7'), (NULL, 'deleted', '7')")


def streamed(spark: SparkSession, url: str, folder: Path) -> None:
    (folder / "in").mkdir()
    for day in ("monday", "tuesday"):
        (folder / "in" / f"{day}.txt").write_text(f"order of {day}\n")
        # The checkpoint says which files were written. Started again, the query goes on there.
        orders = spark.readStream.schema("body STRING").text(str(folder / "in"))
        writing = orders.writeStream.format("tambo").option("protocol", "rsmq")
        writing = writing.options(url=url, queue=QUEUE)
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()


def main(url: str) -> None:
    spark = session("example", master="local[2]")
    at_once(spark, url)
    with tempfile.TemporaryDirectory() as folder:
        streamed(spark, url, Path(folder))

    journal = spark.read.format("tambo").options(url=url, protocol="rsmq", queue=QUEUE)
    rows = journal.load()
    for event, count in sorted(rows.groupBy("event").count().collect()):
        print(event, count)
    [first] = rows.where("id = '999'").select("at", "body").collect()
    print(bytes(first.body).decode(), "at", first["at"])
    spark.stop()

    # Nobody else reads this one: what is committed is trimmed, but for the last entry.
    with JournalReader(url, "rsmq", QUEUE, name="example") as journal:
        print("trimmed:", journal.commit(journal.last_id() or "0-0"))
        journal.forget()
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
