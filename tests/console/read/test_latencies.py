from __future__ import annotations

from typing import Any

from tambomq.chasqui.job import QueueEvent
from tambomq.console.read.history import MINUTE_MS
from tambomq.console.read.latencies import QueueLatencies, percentile

NOON = 1_000_000 * MINUTE_MS


def event(at_ms: int, name: str, job: str = "j", **fields: Any) -> QueueEvent:
    return QueueEvent(name, job, "", fields, f"{at_ms}-0")


def test_percentiles_are_values_that_occurred() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [percentile(ordered, share) for share in (0.5, 0.95, 0.99)] == [50, 95, 99]
    assert percentile([7.0], 0.99) == 7


def test_runs_are_measured_by_the_minute_in_which_they_ended() -> None:
    latencies = QueueLatencies()
    took = [event(NOON + n, "completed", duration_us=n * 1_000_000) for n in (1, 2, 3)]
    took.append(event(NOON + MINUTE_MS, "failed", duration_us=500_000))
    latencies.record(took)
    series = latencies.run_times(NOON + MINUTE_MS)
    assert series.values["p50"][-2:] == [2, 0.5]
    assert series.values["p99"][-2:] == [3, 0.5]


def test_runs_without_a_duration_are_left_out() -> None:
    latencies = QueueLatencies()
    latencies.record([event(NOON, "completed"), event(NOON, "completed", duration_us="soon")])
    assert set(latencies.run_times(NOON).values["p50"]) == {None}


def test_waits_are_measured_by_the_minute_in_which_they_ended() -> None:
    latencies = QueueLatencies()
    latencies.record([event(NOON - 1500, "waiting"), event(NOON, "active", attempt=1)])
    assert latencies.wait_times(NOON).values["p95"][-1] == 1.5
