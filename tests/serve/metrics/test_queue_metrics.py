from __future__ import annotations

from typing import Any

import pytest

from tambomq.console.model import Protocol, QueueRef, QueueRow, Trouble
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
