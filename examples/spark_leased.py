"""A queue as a stream: each message is in the files once, and some go back to the queue.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tambomq.errors import QueueExists
from tambomq.rsmq import Rsmq
from tambomq.spark import session, settle

QUEUE = "example-leased"
DEAD = f"{QUEUE}-dead"
LEASE = "example"


def fill(rsmq: Rsmq) -> None:
    for queue in (QUEUE, DEAD):
        try:
            rsmq.create_queue(queue)
        except QueueExists:
            rsmq.purge_queue(queue)
    rsmq.send_messages(QUEUE, [f"order {number}" for number in range(1000)])
    rsmq.send_messages(QUEUE, ["nonsense", "too early"])


def consume(spark: SparkSession, url: str, folder: str) -> None:
    """Stream what there is to files; what is committed there is deleted here."""
    # The lease is this query's name for what it holds: the same after every restart.
    source = spark.readStream.format("rsmq").options(url=url, queue=QUEUE, lease=LEASE)
    rows = source.option("maxRowsPerBatch", 400).load()

    def keep(batch: DataFrame, number: int) -> None:
        text = f.col("body").cast("string")
        judged = batch.select(
            *("queue", "claim", "id", text.alias("text")),
            f.when(text == "nonsense", "dead")
            .when(text == "too early", "retry")
            .otherwise("done")
            .alias("verdict"),
            f.lit(3_600_000).alias("delay_ms"),
            f.lit("nobody understands this").alias("reason"),
        )
        # A batch that is run again after a crash overwrites what it wrote before.
        done = judged.where("verdict = 'done'").select("id", "text")
        done.write.mode("overwrite").parquet(f"{folder}/orders/batch={number}")
        settle(judged.where("verdict <> 'done'"), lease=LEASE, url=url)

    query = (
        rows.writeStream.foreachBatch(keep)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(url: str) -> None:
    with Rsmq(url) as rsmq, TemporaryDirectory() as folder:
        fill(rsmq)
        spark = session("leased")
        consume(spark, url, folder)
        orders = spark.read.parquet(f"{folder}/orders")
        print("orders", orders.count(), "in batches", orders.select("batch").distinct().count())
        spark.stop()
        for message in rsmq.peek_messages(QUEUE):
            print(f"waits for its next run: {message.text}")
        for message in rsmq.peek_messages(DEAD):
            print(f"{message.text} is dead: {message.reason}")
        for queue in (QUEUE, DEAD):
            rsmq.delete_queue(queue)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
