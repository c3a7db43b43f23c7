"""Rows of Spark become entries of a journal: a past that somebody else has kept, told anew.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.journal import ops
from tambomq.journal.keys import Keys
from tambomq.spark import session
from tambomq.store.sync import Store

JOURNAL = Keys("rsmq", "example-write")


def at_once(spark: SparkSession, url: str) -> None:
    # What a log has, row by row: when, what, of which message.
    past = spark.sql("""
        SELECT concat('order ', id) AS body,
               CAST(id AS STRING) AS id,
               timestamp'2026-01-01 09:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) AS at
        FROM range(1000)
    """)
    told = past.write.format("tambo").options(url=url, protocol="rsmq", queue=JOURNAL.queue)
    told.mode("append").save()

    # In SQL: a view with the columns to be written.
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW later (body STRING, event STRING, id STRING) USING tambo "
        f"OPTIONS (url '{url}', protocol 'rsmq', queue '{JOURNAL.queue}')"
    )
    spark.sql("INSERT INTO later VALUES (NULL, 'received', '7'), (NULL, 'deleted', '7')")


def streamed(spark: SparkSession, url: str, folder: Path) -> None:
    (folder / "in").mkdir()
    for day in ("monday", "tuesday"):
        (folder / "in" / f"{day}.txt").write_text(f"order of {day}\n")
        # The checkpoint says which files were written. Started again, the query goes on there.
        orders = spark.readStream.schema("body STRING").text(str(folder / "in"))
        writing = orders.writeStream.format("tambo").option("protocol", "rsmq")
        writing = writing.options(url=url, queue=JOURNAL.queue)
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()


def main(url: str) -> None:
    store = Store(url)
    spark = session("example", master="local[2]")
    at_once(spark, url)
    with tempfile.TemporaryDirectory() as folder:
        streamed(spark, url, Path(folder))

    journal = spark.read.format("tambo").options(url=url, protocol="rsmq", queue=JOURNAL.queue)
    rows = journal.load()
    for event, count in sorted(rows.groupBy("event").count().collect()):
        print(event, count)
    [first] = rows.where("id = '999'").select("at", "body").collect()
    print(bytes(first.body).decode(), "at", first["at"])
    spark.stop()

    # Nobody else reads this one.
    store.run(ops.trim(JOURNAL, "18446744073709551615-0"))
    print("left:", store.run(ops.length(JOURNAL)))
    store.close()
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
