"""A disk that is really full, wherever in a batch: one line, nothing taken, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tambomq.errors import LakeError
from tambomq.pipeline.ingest.batch import LifecycleTimeouts
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.lake import BRONZE, Lake
from tambomq.rsmq import Rsmq
from tests.pipeline import comparing
from tests.pipeline.small_disk import Disk, limited_disk, small_disk
from tests.pipeline.workload import Workload
from tests.servers import Server

SOON = LifecycleTimeouts(watermark_delay_ms=0, give_up_ms=10**12)
JOBS, MORE = 1000, 3000

pytestmark = pytest.mark.slow


@pytest.fixture
def traffic(server: Server) -> Iterator[Workload]:
    made = Workload(server.url)
    made.fill(JOBS)
    yield made
    made.close()


def run(spark: SparkSession, lake: Lake, server: Server) -> int:
    """Run a pipeline over all that is there; return how many rows that was."""
    # What is counted in the queues is committed by itself, and may find room that a batch lacks.
    options = PipelineOptions(server.url, once=True, timeouts=SOON, snapshots=False)
    return sum(each.rows for each in Pipeline(spark, lake, options).follow(lambda: False))


def fails(spark: SparkSession, lake: Lake, server: Server, disk: Disk, size: int) -> None:
    """Run a pipeline with *size* bytes left on its disk: it fails and leaves all as it was."""
    before = lake.log.version().number
    files = sorted(lake.path.rglob("*.parquet"))
    disk.leave(size)
    with pytest.raises(LakeError) as fault:
        run(spark, lake, server)
    disk.clear()
    reason = "the batch was not written: free some space and start again"
    assert str(fault.value) == f"the disk of {lake.path} is full; {reason}", size
    assert Lake.open(lake.path).log.version().number == before
    assert sorted(lake.path.rglob("*.parquet")) == files


@pytest.mark.parametrize(
    ("opened", "sizes"),
    [(small_disk, (0, 8_192, 40_000, 200_000)), (limited_disk, (0, 1_000, 5_000))],
    ids=["file system", "limit"],
)
def test_a_full_disk_is_reported_in_one_line_and_the_batch_is_retried(
    spark: SparkSession,
    server: Server,
    traffic: Workload,
    tmp_path: Path,
    opened: Callable[[Path], AbstractContextManager[Disk]],
    sizes: tuple[int, ...],
) -> None:
    # Java unpacks a library before it compresses for the first time, which needs room too.
    spark.range(1).write.parquet(str(tmp_path / "first"))
    with opened(tmp_path / "disk") as disk:
        lake = Lake.make(disk.path / "lake")
        for size in sizes:
            fails(spark, lake, server, disk, size)
        total = sum(lifecycle.events for lifecycle in traffic.lifecycles)
        assert run(spark, lake, server) == total
        comparing.is_bronze(spark, lake, traffic.lifecycles)
        comparing.is_silver(spark, lake, traffic.lifecycles)
        with Rsmq(server.url, journal=["more"]) as rsmq:
            rsmq.create_queue("more")
            rsmq.send_messages("more", [b"%d" % n for n in range(MORE)])
        fails(spark, lake, server, disk, sizes[0])
        assert run(spark, lake, server) == MORE
        files = lake.log.version().of(BRONZE)
        assert sum(file.rows for file in files) == total + MORE
