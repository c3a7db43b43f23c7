"""GOMQ's queues as tables of Spark: typed payloads, what waits for whom, who is subscribed.

Reading consumes nothing. Start a server with `make run`, then run this file. GOMQ_ADDRESS names
another one, REDIS_URL the Redis behind it.
"""

from __future__ import annotations

import os

from tambomq.gomq import GomqClient
from tambomq.spark import session

KEY, CONSUMER = "example-spark", "example-spark-shop"


def main(address: str, url: str) -> None:
    spark = session("example", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    options = {"url": url, "queue": KEY}
    with GomqClient(address, peer="example-spark-peer") as client:
        client.publish_many(
            [(KEY, '{"item": "tea", "count": 2}'), (KEY, '{"item": "rum"}'), (KEY, "no JSON")]
        )

        # Nobody is subscribed: everything is in the main queue.
        typed = {"payload": "json", "payloadSchema": "item STRING, count INT"}
        table = spark.read.format("gomq").options(**options, **typed).load()
        for row in table.orderBy("position").collect():
            item, count = (row.value.item, row.value["count"]) if row.value else (None, None)
            print(row.position, item, count, "unreadable" if row.error else "fine")

        # Now it waits for who has subscribed. The same from SQL:
        client.subscribe(KEY, CONSUMER)
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW waiting USING gomq "
            f"OPTIONS (url '{url}', queue '{KEY}', table 'dedicated', payload 'text')"
        )
        spark.sql("SELECT consumer, peer, position, value FROM waiting ORDER BY position").show(
            truncate=False
        )

        # And who that is.
        people = spark.read.format("gomq").options(**options, table="subscriptions").load()
        people.select("key", "consumer", "peer", "waiting").show(truncate=False)

        print("observed:", len(client.observe(CONSUMER)))
        client.unsubscribe(KEY, CONSUMER)
    spark.stop()
    print("done")


if __name__ == "__main__":
    main(
        os.environ.get("GOMQ_ADDRESS", "127.0.0.1:10001"),
        os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"),
    )
