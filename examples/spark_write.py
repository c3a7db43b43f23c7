"""Rows of Spark become RSMQ messages: at once, under a name, and from a stream. Each row once.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from tambomq.errors import QueueExists
from tambomq.rsmq import Rsmq
from tambomq.spark import session

QUEUES = ("example-write-eu", "example-write-us")


def at_once(spark: SparkSession, url: str) -> None:
    # A row says where it goes, and may say when it is to be visible.
    orders = spark.sql("""
        SELECT concat('order ', id) AS body,
               if(id % 2 = 0, 'example-write-eu', 'example-write-us') AS queue,
               if(id < 10, 60, NULL) AS delay_s
        FROM range(1000)
    """)
    orders.write.format("rsmq").options(url=url).mode("append").save()

    # Who gives a write a name may make it again: nothing is written twice.
    named = orders.write.format("rsmq").options(url=url, run=f"orders-{uuid4()}")
    for _ in range(2):
        named.mode("append").save()

    # A row that cannot be written stops the write, unless it is to be left out.
    odd = spark.sql("SELECT * FROM VALUES ('fine'), (NULL) AS rows(body)")
    skipping = odd.write.format("rsmq").options(url=url, queue=QUEUES[0], onError="skip")
    skipping.mode("append").save()


def streamed(spark: SparkSession, url: str, folder: Path) -> None:
    for day in ("monday", "tuesday"):
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{day}.json").write_text(f'{{"body": "report of {day}"}}\n')
        # The checkpoint says which files were written. Started again, the query goes on there.
        reports = spark.readStream.schema("body STRING").json(str(folder / "in"))
        writing = reports.writeStream.format("rsmq").options(url=url, queue=QUEUES[1])
        writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()


def main(url: str) -> None:
    with Rsmq(url) as rsmq:
        for queue in QUEUES:
            try:
                rsmq.create_queue(queue)
            except QueueExists:
                rsmq.purge_queue(queue)
        spark = session("example", master="local[2]")
        at_once(spark, url)
        with tempfile.TemporaryDirectory() as folder:
            streamed(spark, url, Path(folder))
        spark.stop()

        for queue in QUEUES:
            stats = rsmq.get_queue_stats(queue)
            print(queue, "visible", stats.visible, "delayed", stats.delayed)
        bodies = [message.text for message in rsmq.peek_messages(QUEUES[1], 5000)]
        print(sorted(body for body in bodies if body.startswith("report")))
        for queue in QUEUES:
            rsmq.delete_queue(queue)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
