"""RSMQ queues as tables of Spark: read with Python, with SQL, many at once. Nothing is consumed.

Needs the extra [spark]: `make spark`. Start a server with `make run`, then run this file. REDIS_URL
names another server.
"""

from __future__ import annotations

import os

from tambomq.errors import QueueExists
from tambomq.rsmq import Rsmq
from tambomq.spark import session

QUEUES = ("example-spark-eu", "example-spark-us")


def fill(url: str) -> None:
    with Rsmq(url) as rsmq:
        for queue in QUEUES:
            try:
                rsmq.create_queue(queue)
            except QueueExists:
                rsmq.purge_queue(queue)
            rsmq.send_messages(queue, [f"order {each}" for each in range(1000)])
        # One was received, and is hidden for a while; one is not due yet.
        rsmq.receive_messages(QUEUES[0], 1, vt=600)
        rsmq.send_message(QUEUES[1], "later", delay=600)


def main(url: str) -> None:
    fill(url)
    spark = session("example", master="local[2]")

    # One queue, in two tasks.
    orders = spark.read.format("rsmq").options(url=url, queue=QUEUES[0], partitions=2).load()
    print("visible:", orders.where("state = 'visible'").count())

    # All queues that a pattern matches.
    every = spark.read.format("rsmq").options(url=url, queue="example-spark-*").load()
    for queue, state, count in sorted(every.groupBy("queue", "state").count().collect()):
        print(queue, state, count)

    # SQL needs no Python. A body is bytes, since that is what a message is.
    spark.sql(
        f"CREATE TEMPORARY VIEW queues USING rsmq "
        f"OPTIONS (url '{url}', queue 'example-spark-*', table 'queues')"
    )
    every.createTempView("messages")
    query = """
        SELECT queue, any_value(total_sent), max(cast(body AS STRING)) AS last
        FROM queues JOIN messages USING (queue) GROUP BY queue ORDER BY queue
    """
    for queue, sent, last in spark.sql(query).collect():
        print(queue, "was sent", sent, "messages; the last by name is", last)

    spark.stop()
    with Rsmq(url) as rsmq:
        for queue in QUEUES:
            rsmq.delete_queue(queue)
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
