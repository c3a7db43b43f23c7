"""A pipeline that fails where others are killed, on the session of all tests: the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tambomq.errors import LakeError
from tambomq.pipeline.batch import Absorbing, Rules
from tambomq.pipeline.lake import Lake
from tambomq.pipeline.run import Pipeline, Plan
from tests.pipeline import comparing
from tests.pipeline.workload import Workload
from tests.servers import Server

SOON = Rules(watermark_ms=0, give_up_ms=10**12)


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
        plan = Plan(server.url, once=True, rules=SOON)
        return sum(each.rows for each in Pipeline(spark, lake, plan).follow(lambda: False))

    def folding(self: Absorbing, found: DataFrame, to: Path) -> None:
        raise Died("while it folds")

    with monkeypatch.context() as patched:
        patched.setattr(Absorbing, "_write_lives", folding)
        with pytest.raises(LakeError, match="while it folds"):
            run()
    assert lake.log.version().number == 0

    let_go = Pipeline._let_go

    def behind(self: Pipeline, end: dict[str, Any]) -> None:
        if self.busy:
            raise Died("behind the commit")
        let_go(self, end)

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "_let_go", behind)
        with pytest.raises(LakeError, match="behind the commit"):
            run()
    number = lake.log.version().number
    assert number > 0

    run()
    assert lake.log.version().number == number
    assert [*(lake.path / "staging").iterdir()] == []
    comparing.is_bronze(spark, lake, traffic.lives)
    comparing.is_silver(spark, lake, traffic.lives)
    comparing.is_gold(spark, lake, traffic.lives)
