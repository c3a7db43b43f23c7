"""The progress line of a batch, from Spark's progress report."""

from __future__ import annotations

import json

from tambomq.pipeline.ingest.progress import Progress


def spark_progress(**more: object) -> dict[str, object]:
    end = {"rsmq:journal:q": {"id": "5000-0", "lost": 3}, "chasqui:events:q": {"id": "9000-1"}}
    latest = {"rsmq:journal:q": {"id": "7500-0"}, "chasqui:events:q": {"id": "9000-1"}}
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    batch = {"batchId": 4, "numInputRows": 1000, "durationMs": {"triggerExecution": 2000}}
    return {**batch, "sources": [source], **more}


def test_rows_time_lag_and_losses_are_shown() -> None:
    assert Progress.from_spark(spark_progress()) == Progress(4, 1000, 2.0, 2.5, 2, 3)


def test_a_query_without_progress_is_shown() -> None:
    assert Progress.from_spark({}) == Progress(0, 0, 0, 0, 0, 0)


def test_a_source_that_does_not_know_where_its_end_is_has_no_lag() -> None:
    source = {"endOffset": {"rsmq:journal:q": {"id": "5000-0"}}, "latestOffset": None}
    assert Progress.from_spark(spark_progress(sources=[source])).lag_s == 0


def test_a_progress_line_has_rows_rate_lag_and_losses() -> None:
    line = Progress.from_spark(spark_progress()).line(total=5000, late=2)
    for part in ("batch 4", "1,000 rows in 2.0 s (500/s)", "lag 2.5 s", "2 streams", "5,000 rows"):
        assert part in line
    assert line.endswith("3 lost  ·  2 late")


def test_a_line_omits_zero_counts() -> None:
    line = Progress(1, 1, 2.5, 0, 1, 0).line(1, 0)
    assert line == "batch 1  ·  1 row in 2.5 s  ·  lag 0.0 s  ·  1 stream  ·  1 row in the lake"


def test_a_narrow_line_leaves_out_what_matters_least() -> None:
    batch = Progress(4, 1000, 2.0, 2.5, 2, 3)
    whole = batch.line(5000, 2)
    assert batch.line(5000, 2, len(whole)) == whole
    assert "streams" not in batch.line(5000, 2, len(whole) - 1)
    for width in range(len(whole)):
        found = batch.line(5000, 2, width)
        assert all(word in found for word in ("1,000 rows in 2.0 s", "lag 2.5 s", "3 lost"))
        assert len(found) <= max(width, 54)
