"""Two Spark queries in one JVM, until SIGTERM: a leased queue to another one, and a lake.

The first consumes the senders' queue under a lease and writes what it gets with the sink. The
second is the pipeline, which follows the journal of the senders' queue. A query that fails is
started again from its checkpoint, as a supervisor would do.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tambomq.errors import TamboError
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.compact import compact
from tambomq.pipeline.lake.lake import Lake
from tambomq.spark import session
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.rsmq_sender import QUEUE

WRITTEN: Final = "written"
"""The queue that the sink writes to."""
LAKE: Final = "lake"
"""The directory of the lake in the folder of the run."""
QUERIES: Final = ("copied", "filled")
LEASE_LEASES: Final = 5
"""The lease of the stream, in leases of the run: Spark renews from a process that is often busy."""
_AGAIN_S = 0.5
_LOOK_EVERY_S = 1
_EVERY_S: Final = 0.5
_COMPACT_EVERY_S: Final = 120.0
# One heap size, resident from the start, and no second compiler: what is resident then changes
# little over time. Otherwise each page of the heap counts as growth when it is first used.
_JAVA: Final = "-Xms{mb}m -Xmx{mb}m -XX:+AlwaysPreTouch -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_HEAP_MB: Final = 384
_log = logging.getLogger(__name__)


def program(context: RoleContext) -> None:
    """Run both queries until the program is to end."""
    os.environ["SPARK_SUBMIT_OPTS"] = _JAVA.format(mb=_HEAP_MB)
    spark = session("chaos", master="local[2]", conf=_conf(context))
    lake = Lake.make(context.folder / LAKE)
    others = [
        threading.Thread(target=_again, args=(context, each))
        for each in (lambda: _fill(context, spark, lake), lambda: _compact(context, lake))
    ]
    for other in others:
        other.start()
    # In this thread: Spark 4.3 finds a sink in Python only where its session is the active one.
    _again(context, lambda: _copy(context, spark))
    for other in others:
        other.join()
    spark.stop()


def _conf(context: RoleContext) -> Mapping[str, Any]:
    own = context.folder / context.actor
    return {
        "spark.local.dir": own / "local",
        "spark.sql.warehouse.dir": own / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.streaming.numRecentProgressUpdates": 10,
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.minBatchesToRetain": 10,
        "spark.sql.codegen.wholeStage": False,
        "spark.sql.adaptive.enabled": False,
    }


def _again(context: RoleContext, once: Callable[[], None]) -> None:
    """Do it again whenever it fails, until the program is to end."""
    while not context.stopping.is_set():
        try:
            once()
        except (TamboError, PySparkException, Py4JError) as error:
            _log.warning("starting again: %s", str(error)[:2000])
        context.stopping.wait(_AGAIN_S)


def _copy(context: RoleContext, spark: SparkSession) -> None:
    """Consume one queue and write to the other, each message once."""
    reading = spark.readStream.format("rsmq").options(
        url=context.url,
        queue=QUEUE,
        lease="copy",
        leaseSeconds=max(1, round(context.lease_s * LEASE_LEASES)),
        partitions=1,
    )
    writing = reading.load().where("fault IS NULL").select("body").writeStream.format("rsmq")
    writing = writing.options(url=context.url, queue=WRITTEN).option(
        "checkpointLocation", str(context.folder / "copy-checkpoint")
    )
    query = writing.trigger(processingTime=f"{_every_s(context) * 1000:.0f} milliseconds").start()
    try:
        while not context.stopping.is_set():
            if query.awaitTermination(_LOOK_EVERY_S):
                return
            if query.lastProgress is not None:
                ready_file(context.folder, context.actor, "copied").touch()
    finally:
        if query.isActive:
            query.stop()


def _fill(context: RoleContext, spark: SparkSession, lake: Lake) -> None:
    """Fill the lake with the journals of all queues."""
    options = PipelineOptions(
        context.url, (f"rsmq:{QUEUE}",), every_s=_every_s(context), snapshots=False
    )
    with lake.locked():
        for _ in Pipeline(spark, lake, options).follow(context.stopping.is_set):
            ready_file(context.folder, context.actor, "filled").touch()


def _compact(context: RoleContext, lake: Lake) -> None:
    """Merge the files of the lake now and then, beside the pipeline."""
    while not context.stopping.wait(_COMPACT_EVERY_S):
        compact(lake)


def _every_s(context: RoleContext) -> float:
    return float(context.options.get("every_s", _EVERY_S))


def ready_file(folder: Path, actor: str, what: str) -> Path:
    """Return the file that is there once a query of a process has run: one of `QUERIES`."""
    return folder / f"{actor}.{what}"


if __name__ == "__main__":
    main(program)
