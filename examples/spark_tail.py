"""Follow a journal with Spark: what is new in each run, every entry once in the files.

Start a server with `make run`, then run this file. REDIS_URL names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.journal import ops
from tambomq.journal.keys import Keys
from tambomq.journal.wire import Record
from tambomq.spark import session
from tambomq.store.sync import Store

KEYS = Keys("kqueue", "example-tail")


def main(url: str, home: Path) -> None:
    spark = session("spark_tail", master="local[2]")
    store = Store(url)

    # A query without a checkpoint begins where it is told: here, with what comes from now on.
    print("at first:", follow(spark, url, home), "rows")

    store.follow(ops.append(KEYS, [Record(0, body) for body in (b"one", b"two", b"three")]))
    print("then:", follow(spark, url, home), "rows")

    # From its second run on the checkpoint says how far it has come.
    last = store.follow(ops.append(KEYS, [Record(0, b"four"), Record(0, b"five")]))[-1]
    print("again:", follow(spark, url, home), "rows")
    print("and once more:", follow(spark, url, home), "rows")

    rows = spark.read.parquet(str(home / "lake")).orderBy("entry_id").select("body").collect()
    print(", ".join(bytes(row.body).decode() for row in rows))

    # What the files have need not be kept in Redis.
    store.run(ops.trim(KEYS, last))
    print("left in the journal:", store.run(ops.length(KEYS)))
    store.close()
    spark.stop()
    print("done")


def follow(spark: SparkSession, url: str, home: Path) -> int:
    """Read what is there now into files; return how much it was."""
    rows = (
        spark.readStream.format("tambo")
        .option("url", url)
        .option("protocol", KEYS.protocol)
        .option("queue", KEYS.queue)
        .option("startingOffsets", "latest")
        .load()
    )
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(home / "lake"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"), Path(folder))
