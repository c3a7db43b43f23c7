from __future__ import annotations

from typing import Any

import pytest

from tambomq.console.model import Protocol, QueueRef, QueueRow, Trouble
from tambomq.console.read.queues.event_times import TimeBuckets
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.serve.metrics import queue_metrics as module
from tambomq.serve.metrics.queue_metrics import OTHERS, Sampled, queue_metrics
from tests.serve.components import numbers


def sampled(
    *names: str, protocol: Protocol = "rsmq", trouble: Trouble | None = None, **sample: Any
) -> Sampled:
    return {
        QueueRef(protocol, name): (
            QueueSample(depth=1, **sample),
            QueueRow(
                queue=name, protocol=protocol, name=name, depth=1, size_bytes=64, trouble=trouble
            ),
        )
        for name in names
    }


def test_what_is_not_known_has_no_series() -> None:
    found = numbers(queue_metrics(sampled("a", visible=3, in_flight=2, oldest_s=1.5), 0))
    assert {key: value for key, value in found.items() if "a" in key[1:]} == {
        ("messages", "rsmq", "a", "visible"): 3,
        ("messages", "rsmq", "a", "in_flight"): 2,
        ("oldest_age_seconds", "rsmq", "a"): 1.5,
        ("size_bytes", "rsmq", "a"): 64,
    }


def test_an_age_that_is_not_known_is_not_said_to_be_0() -> None:
    queues = {**sampled("a", visible=3), **sampled("a", protocol="gomq", visible=3)}
    found = numbers(queue_metrics(queues, 0))
    assert found["oldest_age_seconds", "rsmq", "a"] == 0
    assert ("oldest_age_seconds", "gomq", "a") not in found


def test_totals_are_counters_and_the_rest_are_gauges() -> None:
    counts: dict[str, Any] = {"entered": 5, "left": 4, "received": 6, "failed": 1, "died": 1}
    found = queue_metrics(sampled("a", protocol="chasqui", visible=1, workers=2, **counts), 0)
    assert {metric.name for metric in found if metric.kind == "counter"} == set(counts)
    assert numbers(found)["paused", "chasqui", "a"] == 0


def test_queues_beyond_the_limit_are_summed_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUES", 2)
    found = numbers(queue_metrics(sampled(*"abcd", visible=3, oldest_s=7, entered=2), 9))
    assert {key[2] for key in found if key[0] == "messages"} == {"a", "b", OTHERS}
    assert found["messages", "rsmq", OTHERS, "visible"] == 6
    assert found["entered", "rsmq", OTHERS] == 4
    assert found["oldest_age_seconds", "rsmq", OTHERS] == 7
    assert (found["listed", "rsmq"], found["left_out", "summed"]) == (2, 2)
    assert found["left_out", "unread"] == 9


def test_a_queue_in_trouble_has_a_series_that_says_which() -> None:
    trouble = Trouble(kind="failing", severity="red", why="38 of the last 40 runs failed.")
    found = numbers(queue_metrics(sampled("a", trouble=trouble), 0))
    assert found["trouble", "rsmq", "a", "failing", "red"] == 1


def test_run_and_wait_times_have_histograms_of_a_bounded_number_of_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TIMED", 2)
    took, waited = TimeBuckets().plus([0.02, 7]), TimeBuckets().plus([0.001])
    times: dict[str, Any] = {"run_times": took, "wait_times": waited}
    queues = {**sampled(*"abcd", protocol="chasqui", **times), **sampled("e")}
    found = [each for each in queue_metrics(queues, 0) if each.kind == "histogram"]
    by_name = {(each.name, dict(each.labels)["queue"]): each for each in found}
    assert set(by_name) == {
        (name, queue) for name in ("run_seconds", "wait_seconds") for queue in ("a", "b", OTHERS)
    }
    runs = by_name["run_seconds", "a"]
    assert runs.value == pytest.approx(7.02)
    assert [count for _, count in runs.buckets] == [0, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    assert [bound for bound, _ in runs.buckets][-1] == "+Inf"
    assert dict(by_name["wait_seconds", OTHERS].buckets)["0.01"] == 2


def test_queues_without_a_look_at_their_events_have_no_histograms() -> None:
    assert not [each for each in queue_metrics(sampled("a"), 0) if each.kind == "histogram"]
