"""A report from a lake says what happened, in figures, in tables, as JSON and in a browser."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (everybody calls it so)

from tambomq.bulk import histogram as dead
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import report as pipeline_report
from tambomq.errors import SettingsError
from tambomq.pipeline.ingest.run import Pipeline, PipelineOptions
from tambomq.pipeline.lake.lake import Lake
from tambomq.pipeline.report import report
from tambomq.pipeline.report.charts import short
from tambomq.pipeline.report.figures import Counts, Figures
from tambomq.pipeline.report.page import html
from tambomq.pipeline.report.report import figures
from tests.cli.transcript import Done, call
from tests.pipeline import browser, comparing
from tests.pipeline.truth import Lifecycle
from tests.pipeline.workload import Workload
from tests.servers import Server, binaries

JOBS = 600
MINUTE_MS = 60_000
NAMES = ("email", "invoice", "resize", "")


Filled = tuple[Lake, list[Lifecycle]]
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A lake, and the truth of what is in it."""
    lake = Lake.make(tmp_path_factory.mktemp("report") / "lake")
    with Server(binaries.valkey()) as server:
        traffic = Workload(server.url, minutes=30)
        traffic.fill(JOBS)
        traffic.close()
        pipeline = Pipeline(spark, lake, PipelineOptions(server.url, once=True, snapshots=False))
        for _ in pipeline.follow(lambda: False):
            pass
    return lake, comparing.with_events(traffic.lifecycles)


@pytest.fixture(scope="module")
def whole_report(spark: SparkSession, filled: Filled) -> Figures:
    return figures(spark, filled[0])


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, with the session of all tests."""
    monkeypatch.setattr(pipeline_report, "open_spark", lambda *_, **__: spark)
    return partial(call, tambo, "tambo", "pipeline", "report", url="redis://127.0.0.1:1")


@pytest.fixture
def known(run: Run, whole_report: Figures, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same, with figures that were made before."""
    monkeypatch.setattr(report, "figures", lambda *_, **__: whole_report)
    return run


def totals(lifecycles: list[Lifecycle]) -> Counts:
    ends = Counter(
        lifecycle.outcome for lifecycle in lifecycles if lifecycle.finished_ms is not None
    )
    return Counts(
        entered=len(lifecycles),
        done=ends["done"],
        failed=sum(len(lifecycle.failed_ms) for lifecycle in lifecycles),
        retried=sum(len(lifecycle.retried_ms) for lifecycle in lifecycles),
        dead=ends["dead"],
    )


def left(lifecycles: list[Lifecycle]) -> int:
    return sum(lifecycle.finished_ms is None for lifecycle in lifecycles)


def test_totals_match_the_lifecycles_that_were_generated(
    whole_report: Figures, filled: Filled
) -> None:
    assert whole_report.totals == totals(filled[1])
    assert whole_report.backlog == left(filled[1])


def test_points_add_up_to_the_totals(whole_report: Figures, filled: Filled) -> None:
    names = Counts.__struct_fields__
    sums = {
        name: sum(getattr(point.counts, name) for point in whole_report.points) for name in names
    }
    assert Counts(**sums) == whole_report.totals
    assert whole_report.points[-1].backlog == left(filled[1])
    assert {b.at_ms - a.at_ms for a, b in pairwise(whole_report.points)} == {
        whole_report.step_s * 1000
    }


@pytest.mark.slow
def test_short_periods_have_short_steps(
    spark: SparkSession, filled: Filled, whole_report: Figures
) -> None:
    middle = whole_report.points[len(whole_report.points) // 2].at_ms
    begin, everywhere = middle - 5 * MINUTE_MS, ["rsmq:*", "gomq:*", "chasqui:*", "kqueue:*"]
    brief = figures(spark, filled[0], from_ms=begin, until_ms=middle, queues=everywhere)
    whole = [
        point for point in whole_report.points if middle - 5 * MINUTE_MS <= point.at_ms < middle
    ]
    assert brief.step_s == 10
    assert sum(p.counts.failed for p in brief.points) == brief.totals.failed
    assert sum(p.counts.entered for p in brief.points) == sum(p.counts.entered for p in whole)
    assert brief.points[-1].backlog == whole[-1].backlog


def test_rows_match_the_generated_lifecycles_of_each_name(
    whole_report: Figures, filled: Filled
) -> None:
    by_name: dict[tuple[str, str, str], list[Lifecycle]] = {}
    for lifecycle in filled[1]:
        by_name.setdefault((lifecycle.protocol, lifecycle.queue, lifecycle.name), []).append(
            lifecycle
        )
    found = {(line.protocol, line.queue, line.name): line for line in whole_report.lines}
    assert {key: line.counts for key, line in found.items()} == {
        key: totals(lifecycles) for key, lifecycles in by_name.items()
    }
    assert {key: line.backlog for key, line in found.items()} == {
        key: left(lifecycles) for key, lifecycles in by_name.items()
    }


def test_spreads_are_those_of_all_runs(whole_report: Figures, filled: Filled) -> None:
    runs = sorted(lifecycle.run_ms for lifecycle in filled[1] if lifecycle.run_ms is not None)
    waits = sorted(lifecycle.wait_ms for lifecycle in filled[1] if lifecycle.wait_ms is not None)
    assert whole_report.run.p50 == runs[math.ceil(0.5 * len(runs)) - 1]
    assert whole_report.wait.p99 == waits[math.ceil(0.99 * len(waits)) - 1]


def test_an_error_has_the_shape_that_the_dead_letters_of_a_queue_have(spark: SparkSession) -> None:
    texts = [
        "ValueError: order 17 of 'shop' failed",
        "can't open the user's file 'a b' at 0xDEADbeef",
        "GET HTTPS://example.com/x?y=1 by ann@example.com took 1.5 s\n  in line 3",
        "no job 01J9ZK8Q0V7W3X5Y2A4B6C8D0E, row 6f1e4f5c-9a3b-4c1d-8e2f-0123456789ab",
    ]
    found = spark.createDataFrame([(text,) for text in texts], "text STRING").select(
        report.shape(F.col("text")).alias("shape")
    )
    assert [row["shape"] for row in found.collect()] == [dead.shape(text) for text in texts]


def test_reasons_are_counted_by_their_shape(whole_report: Figures, filled: Filled) -> None:
    died = Counter(lifecycle.reason for lifecycle in filled[1] if lifecycle.outcome == "dead")
    found = Counter[str]()
    for each in whole_report.reasons:
        found[each.reason] += each.dead
    assert found == died
    # Jobs of one name fail with one text, so there is one kind of each: with its type.
    failed = {each.error for each in whole_report.reasons if each.reason == "retries_exhausted"}
    assert failed == {f"RuntimeError: no {name} today".replace("  ", " ") for name in NAMES}


@pytest.mark.slow
def test_a_report_can_cover_a_part_of_the_time(
    spark: SparkSession, filled: Filled, whole_report: Figures
) -> None:
    middle = whole_report.points[len(whole_report.points) // 2].at_ms
    late = figures(spark, filled[0], from_ms=middle)
    entered = sum(point.counts.entered for point in whole_report.points if point.at_ms >= middle)
    assert 0 < late.totals.entered == entered < whole_report.totals.entered
    assert late.points[0].at_ms == middle
    assert late.backlog == whole_report.backlog


@pytest.mark.slow
def test_a_report_can_cover_some_queues(spark: SparkSession, filled: Filled) -> None:
    found = figures(spark, filled[0], queues=["rsmq:*", "gomq:*"])
    assert {line.protocol for line in found.lines} == {"rsmq", "gomq"}
    with pytest.raises(SettingsError, match="has no data of these queues"):
        figures(spark, filled[0], queues=["rsmq:none"])


@pytest.mark.slow
def test_a_time_before_all_is_refused(spark: SparkSession, filled: Filled) -> None:
    with pytest.raises(SettingsError, match="no data of that time: it has data from"):
        figures(spark, filled[0], until_ms=1000)


@pytest.mark.slow
def test_an_empty_lake_says_how_to_fill_it(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(SettingsError, match="tambo pipeline run"):
        figures(spark, lake)


def test_the_command_prints_tables_and_writes_a_page(
    known: Run, filled: Filled, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    done = known("--lake", str(filled[0].path), "--out", str(out))
    assert done.code == 0, done.err
    assert f"{len(filled[1]):,} entered" in done.out
    assert "chasqui:orders" in done.out
    assert "<svg" in out.read_text()


def test_the_command_prints_json(known: Run, filled: Filled) -> None:
    done = known("--lake", str(filled[0].path), "--out", "-", "--json")
    assert json.loads(done.out)["totals"]["entered"] == len(filled[1])


def test_a_page_that_cannot_be_written_is_reported(
    known: Run, filled: Filled, tmp_path: Path
) -> None:
    done = known("--lake", str(filled[0].path), "--out", str(tmp_path / "no" / "page.html"))
    assert done.code == 2
    assert "choose another --out" in done.err


def test_an_invalid_duration_is_refused(run: Run) -> None:
    assert "'yesterday' is not a duration" in run("--since", "yesterday").err


def test_a_directory_without_a_lake_is_reported(run: Run, tmp_path: Path) -> None:
    assert "tambo pipeline run" in run("--lake", str(tmp_path / "none")).err


@pytest.mark.interop
@pytest.mark.skipif(browser.found() is None, reason="there is no browser")
def test_a_browser_shows_the_numbers_of_gold(
    spark: SparkSession, filled: Filled, whole_report: Figures, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    # A script that runs after the page's own, in the middle of a chart.
    probe = """<script>
    const chart = document.getElementById("throughput"), box = chart.getBoundingClientRect();
    const where = {clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true};
    chart.dispatchEvent(new PointerEvent("pointermove", where));
    </script>"""
    page.write_text(html(whole_report).replace("</body>", f"{probe}</body>"))
    shown = browser.opened(page)
    sums = filled[0].read(spark, "gold").groupBy().sum("entered", "done", "failed", "dead").first()
    assert sums is not None
    tiles = re.findall(r'<div class="tile[^"]*"><b>([^<]+)</b>', shown)
    assert tiles[:4] == [short(value) for value in sums]
    middle = whole_report.points[
        (len(whole_report.points) - 1) // 2 : len(whole_report.points) // 2 + 1
    ]
    tip = re.search(r'<div class="tip"[^>]*display: block[^>]*>(.*?)</div></div>', shown)
    assert tip is not None
    assert any(f"entered {point.counts.entered:,}" in tip[1] for point in middle)
