"""Rows of Spark become ChasquiMQ jobs: values of any type, ids that count once, delays, and SQL.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.chasqui import BlockingQueue
from tambomq.spark import session

QUEUE = "example-write"


def at_once(spark: SparkSession, url: str) -> None:
    # A struct becomes a map of MessagePack: what a handler gets as a dict.
    mails = spark.sql("""
        SELECT named_struct('to', concat('user-', id), 'tags', array('spring', 'sale')) AS payload,
               if(id % 2 = 0, 'mail', 'sms') AS name,
               concat('campaign-7-', id) AS id,
               if(id < 10, 60000, NULL) AS delay_ms,
               3 AS attempts
        FROM range(1000)
    """)
    mails.write.format("chasqui").options(url=url, queue=QUEUE).mode("append").save()

    # In SQL: a view with the columns to be written. What all jobs share may be an option.
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW letters (payload STRING, run_at TIMESTAMP) USING chasqui "
        f"OPTIONS (url '{url}', queue '{QUEUE}', name 'letter')"
    )
    spark.sql("INSERT INTO letters VALUES ('dear all', NULL), ('later', now() + INTERVAL 1 HOUR)")


def streamed(spark: SparkSession, url: str, folder: Path) -> None:
    (folder / "in").mkdir()
    for day in ("monday", "tuesday"):
        (folder / "in" / f"{day}.json").write_text(f'{{"data": {{"day": "{day}"}}}}\n')
        # The checkpoint says which files were written. Started again, the query goes on there.
        reports = spark.readStream.schema("data STRUCT<day: STRING>").json(str(folder / "in"))
        writing = reports.writeStream.format("chasqui").options(url=url, queue=QUEUE, name="report")
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()


def main(url: str) -> None:
    with BlockingQueue(QUEUE, redis_url=url) as queue:
        queue.obliterate(force=True)
        spark = session("example", master="local[2]")
        at_once(spark, url)
        with tempfile.TemporaryDirectory() as folder:
            streamed(spark, url, Path(folder))

        counts = queue.get_job_counts()
        print("waiting", counts.waiting, "delayed", counts.delayed)
        jobs = spark.read.format("chasqui").options(url=url, queue=QUEUE).load()
        for name, count in sorted(jobs.groupBy("name").count().collect()):
            print(name, count)
        spark.stop()
        queue.obliterate(force=True)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
