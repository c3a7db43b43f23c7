"""Three tables: a journal, the number of its events of each kind, and all dead letters."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """The journal of the queue: each run adds the new entries, every entry once."""
    options = {"url": URL, "protocol": "rsmq", "queue": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("tambo").options(**options).load()


@dp.materialized_view
def happened() -> DataFrame:
    """How often each thing happened to orders."""
    return spark.read.table("orders").groupBy("event").count()


@dp.materialized_view
def dead_letters() -> DataFrame:
    """The dead letters of all ChasquiMQ queues as they are at this moment."""
    return spark.read.format("chasqui").options(url=URL, queue="*", table="dlq").load()
