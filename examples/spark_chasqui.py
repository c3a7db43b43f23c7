"""ChasquiMQ's queues as tables of Spark: jobs with their values, events, and plain SQL.

Start a server with `make run`, then run this file. REDIS_URL names another server.
"""

from __future__ import annotations

import os

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from tambomq.chasqui import BlockingQueue
from tambomq.spark import session

QUEUE = "example-spark"


def main(url: str) -> None:
    with BlockingQueue(QUEUE, redis_url=url) as queue:
        queue.obliterate(force=True)
        queue.add_bulk(
            [{"name": "invoice", "data": {"to": f"c-{n % 3}", "cents": n}} for n in range(2000)]
        )
        queue.add("reminder", {"to": "c-1", "cents": 5}, delay_ms=86_400_000)

    spark = session("example", master="local[2]")
    options = {"url": url, "queue": QUEUE}

    # A payload is MessagePack; with a schema it becomes columns. Nothing is consumed.
    typed = {"payload": "msgpack", "payloadSchema": "to STRING, cents BIGINT"}
    jobs = spark.read.format("chasqui").options(**options, **typed).load()
    totals = jobs.groupBy("value.to").agg(F.count("*"), F.sum("value.cents"))
    for to, count, cents in totals.orderBy("to").collect():
        print(to, "has", count, "invoices over", cents, "cents")

    # Filters on times, names and queues save reading.
    delayed = spark.read.format("chasqui").options(**options, table="delayed").load()
    print("delayed:", [row.name for row in delayed.where("due_at > now()").collect()])

    # The same in SQL, here with all queues whose names begin alike.
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW events USING chasqui "
        f"OPTIONS (url '{url}', queue 'example-s*', table 'events')"
    )
    events = spark.sql("SELECT event, delay_ms FROM events WHERE delay_ms > 0").collect()
    print("events:", [(row.event, row.delay_ms) for row in events])
    spark.stop()

    with BlockingQueue(QUEUE, redis_url=url) as queue:
        print("still waiting:", queue.get_job_counts().waiting)
        queue.obliterate()
    print("done")


if __name__ == "__main__":
    main(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
