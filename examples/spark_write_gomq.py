"""Rows of Spark are published to GOMQ keys: at once, by SQL, and from a stream. Each row once.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file.
GOMQ_ADDRESS names another one, REDIS_URL the Redis behind it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.gomq import GomqClient
from tambomq.spark import session

KEYS = ("example-write-rain", "example-write-wind")
CONSUMER = "example-write-reader"
WRITTEN = 103


def at_once(spark: SparkSession, url: str) -> None:
    # A row says to which key it is published.
    weather = spark.sql("""
        SELECT to_json(named_struct('station', id)) AS payload,
               if(id % 2 = 0, 'example-write-rain', 'example-write-wind') AS key
        FROM range(100)
    """)
    weather.write.format("gomq").options(url=url).mode("append").save()

    # In SQL: a view with the columns to be written.
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW rain (payload STRING) USING gomq "
        f"OPTIONS (url '{url}', key '{KEYS[0]}')"
    )
    spark.sql("INSERT INTO rain VALUES ('it pours')")


def streamed(spark: SparkSession, url: str, folder: Path) -> None:
    (folder / "in").mkdir()
    for day in ("monday", "tuesday"):
        (folder / "in" / f"{day}.txt").write_text(f"storm on {day}\n")
        # The checkpoint says which files were written. Started again, the query goes on there.
        warnings = spark.readStream.schema("payload STRING").text(str(folder / "in"))
        writing = warnings.writeStream.format("gomq").options(url=url, key=KEYS[1])
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()


def main(address: str, url: str) -> None:
    with GomqClient(address, peer="example-write-peer") as client:
        for key in KEYS:
            client.subscribe(key, CONSUMER)
        spark = session("example", master="local[2]")
        at_once(spark, url)
        with tempfile.TemporaryDirectory() as folder:
            streamed(spark, url, Path(folder))
        spark.stop()

        # Servers find what Spark has written, and hand it to those who are subscribed.
        found = Counter(record.key for record in islice(client.watch(CONSUMER), WRITTEN))
        for key in KEYS:
            print(key, found[key])
            client.unsubscribe(key, CONSUMER)
    print("done")


if __name__ == "__main__":
    main(
        os.environ.get("GOMQ_ADDRESS", "127.0.0.1:10001"),
        os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"),
    )
