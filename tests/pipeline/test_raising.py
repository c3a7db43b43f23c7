"""A pipeline that fails where others are killed, on the session of all tests: the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tambomq.errors import LakeError
from tambomq.pipeline.ingest.batch import LakeBatchWriter, LifecycleTimeouts
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.lake import Lake
from tests.pipeline import comparing
from tests.pipeline.workload import Workload
from tests.servers import Server

SOON = LifecycleTimeouts(watermark_delay_ms=0, give_up_ms=10**12)


class Died(Exception):
    """The end of a process, as far as one that goes on can have it."""


@pytest.mark.slow
def test_a_pipeline_that_fails_anywhere_leaves_no_gap_and_no_double(
    spark: SparkSession, server: Server, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Workload(server.url)
    traffic.fill(60)
    traffic.close()

    def run() -> int:
        options = PipelineOptions(server.url, once=True, timeouts=SOON)
        return sum(each.rows for each in Pipeline(spark, lake, options).follow(lambda: False))

    def folding(self: LakeBatchWriter, found: DataFrame, to: Path) -> None:
        raise Died("while it folds")

    with monkeypatch.context() as patched:
        patched.setattr(LakeBatchWriter, "_write_lifecycles", folding)
        with pytest.raises(LakeError, match="while it folds"):
            run()
    assert lake.log.version().number == 0

    commit_journals = Pipeline._commit_journals

    def behind(self: Pipeline, end: dict[str, Any]) -> None:
        if self.busy:
            raise Died("behind the commit")
        commit_journals(self, end)

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "_commit_journals", behind)
        with pytest.raises(LakeError, match="behind the commit"):
            run()
    number = lake.log.version().number
    assert number > 0

    run()
    assert lake.log.version().number == number
    assert [*(lake.path / "staging").iterdir()] == []
    comparing.is_bronze(spark, lake, traffic.lifecycles)
    comparing.is_silver(spark, lake, traffic.lifecycles)
    comparing.is_gold(spark, lake, traffic.lifecycles)
