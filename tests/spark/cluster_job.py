"""One job of each kind, run on a given master: a process for `test_cluster_*`.

cluster_job.py <url> <folder> [master]
    read the queue ``orders``, take it into files, write it to the queue ``copies``, follow a
    journal; print in JSON what came of it. Without a master it runs where ``spark-submit`` says.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tambomq.spark import session


def packages(_: object) -> list[str]:
    """Say where a worker has the package from."""
    import tambomq  # noqa: PLC0415  (the worker's own)

    return [str(tambomq.__file__)]


def workers(spark: SparkSession) -> int:
    java: Any = spark.sparkContext._jsc
    # The driver is one of them.
    return int(java.sc().getExecutorMemoryStatus().size()) - 1


def streamed(spark: SparkSession, rows: DataFrame, folder: str, name: str) -> list[int]:
    """Take all there is into files; how many rows these hold, and how many bodies."""
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/{name}-checkpoint")
    writer.start(f"{folder}/{name}").awaitTermination()
    bodies = spark.read.parquet(f"{folder}/{name}").select("body")
    return [bodies.count(), bodies.distinct().count()]


def main(url: str, folder: str, master: str | None = None) -> None:
    conf: dict[str, Any] = {
        # The first task waits for all workers.
        "spark.cores.max": 2,
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    if master is None or master.startswith("spark:"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = session("cluster", master=master, conf=conf)
    assert session() is spark  # sends nothing a second time
    found: dict[str, Any] = {"master": spark.sparkContext.master}
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(packages).collect()
    found |= {"packages": sorted(set(places)), "workers": workers(spark)}

    orders = {"url": url, "queue": "orders"}
    rows = spark.read.format("rsmq").options(**orders).load()
    found["read"] = rows.count()
    spark.sql(f"CREATE TEMPORARY VIEW v USING rsmq OPTIONS (url '{url}', queue 'orders')")
    found["by SQL"] = spark.sql("SELECT * FROM v WHERE body = X'39'").count()

    copies = rows.select("body").write.format("rsmq").options(url=url, queue="copies")
    copies.mode("append").save()
    leased = spark.readStream.format("rsmq").options(**orders, lease="job", maxRowsPerBatch=800)
    found["leased"] = streamed(spark, leased.load(), folder, "leased")
    journal = spark.readStream.format("tambo").options(url=url, queue="orders", protocol="kqueue")
    found["followed"] = streamed(spark, journal.load(), folder, "followed")
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
