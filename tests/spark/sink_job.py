"""Jobs that die, or fail, while they write: a process for `test_sink_crash`. Configured in JSON.

Without *retry*, it streams the files in <folder>/in to the queue ``q``, and comes by *doom*. With
it, it writes 10,000 rows at once, and each task fails the first time, half-way.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tambomq.spark import session
from tests.spark.crash_job import CrashingRsmq
from tests.spark.dying import CrashPlan, first_time


def stream(spark: SparkSession, url: str, args: str) -> None:
    """Write what the files hold, two of them in each batch."""
    gateway: Any = spark.sparkContext._gateway
    doom = CrashPlan.read(args, gateway.proc.pid)
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", 2)
    spark.dataSource.register(CrashingRsmq)
    writing = rows.text(f"{doom.folder}/in").writeStream.format(CrashingRsmq.name())
    writing = writing.options(url=url, queue="q", doom=doom.to_json())
    writing = writing.option("checkpointLocation", f"{doom.folder}/checkpoint")
    writing.trigger(availableNow=True).start().awaitTermination()


def retry(spark: SparkSession, url: str, folder: str) -> None:
    """Write rows whose maker fails once in each of two tasks, after 3500 of them."""

    def failing(number: int) -> str:
        if number % 5000 == 3500 and first_time(folder, f"failed-{number}"):
            raise OSError("for the first time")
        return str(number)

    rows = spark.range(10_000, numPartitions=2)
    made = rows.select(udf(failing, useArrow=False)("id").alias("body"))
    made.write.format("rsmq").options(url=url, queue="q").mode("append").save()


def main(args: dict[str, Any]) -> None:
    conf = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": 1000,
        "spark.local.dir": f"{args['folder']}/local",
        "spark.sql.warehouse.dir": f"{args['folder']}/warehouse",
    }
    spark = session("sink-job", master="local[2,3]", conf=conf)
    if args.get("retry"):
        retry(spark, args["url"], args["folder"])
    else:
        stream(spark, args["url"], args["doom"])
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
