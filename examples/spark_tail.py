"""Follow a journal with Spark: what is new in each run, every entry once in the files.

Start a server with `make run`, then run this file. REDIS_URL names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tambomq.journal import JournalReader
from tambomq.rsmq import Rsmq
from tambomq.spark import session

QUEUE = "example-tail"


def main(url: str, home: Path) -> None:
    spark = session("spark_tail", master="local[2]")
    rsmq = Rsmq(url, journal=(QUEUE,))
    rsmq.create_queue(QUEUE)

    # A query without a checkpoint begins where it is told: here, with what comes from now on.
    print("at first:", follow(spark, url, home), "rows")

    rsmq.send_messages(QUEUE, ["one", "two", "three"])
    print("then:", follow(spark, url, home), "rows")

    # From its second run on the checkpoint says how far it has come.
    rsmq.send_messages(QUEUE, ["four", "five"])
    print("again:", follow(spark, url, home), "rows")
    print("and once more:", follow(spark, url, home), "rows")

    rows = spark.read.parquet(str(home / "lake")).orderBy("entry_id").select("body").collect()
    print(", ".join(bytes(row.body).decode() for row in rows))

    # What the files have need not be kept in Redis; the last entry always is.
    with JournalReader(url, "rsmq", QUEUE, name="example") as journal:
        print("trimmed from the journal:", journal.commit(journal.last_id() or "0-0"))
        journal.forget()
    rsmq.delete_queue(QUEUE)
    rsmq.close()
    spark.stop()
    print("done")


def follow(spark: SparkSession, url: str, home: Path) -> int:
    """Read what is there now into files; return how much it was."""
    rows = (
        spark.readStream.format("tambo")
        .option("url", url)
        .option("protocol", "rsmq")
        .option("queue", QUEUE)
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
