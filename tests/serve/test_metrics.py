from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tambomq.serve.door import Metric
from tambomq.serve.health import Health
from tambomq.serve.metrics import Metrics
from tests.serve.doors import Recorded


def metrics(*doors: Recorded) -> Metrics:
    health = Health()
    health.expect(doors)
    for door in doors:
        health.opened(door)
    return Metrics(health)


def door(*numbers: Metric) -> Recorded:
    recorded = Recorded("rsmq")
    recorded.numbers = numbers
    return recorded


async def samples(found: Metrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families((await found.text()).decode())
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


async def test_a_counter_ends_in_total_and_a_gauge_does_not() -> None:
    told = await samples(metrics(door(Metric("sent", "x", 3, "counter"), Metric("now", "y", 2))))
    assert told["tambo_rsmq_sent_total",] == 3
    assert told["tambo_rsmq_now",] == 2


async def test_the_metrics_of_one_name_are_one_family() -> None:
    numbers = [Metric("m", "x", n, labels=(("queue", q),)) for n, q in ((1, "a"), (2, 'b"\n\\'))]
    found = metrics(door(*numbers))
    told = await samples(found)
    assert told["tambo_rsmq_m", "a"] == 1
    assert told["tambo_rsmq_m", 'b"\n\\'] == 2
    assert (await found.text()).count(b"# TYPE tambo_rsmq_m gauge") == 1


async def test_a_name_that_is_no_text_is_spelled_out() -> None:
    odd = Metric("m", "x", 1, labels=(("queue", "a\udcff"),))
    assert (await samples(metrics(door(odd))))["tambo_rsmq_m", "a\\udcff"] == 1


async def test_the_process_and_each_door_are_told() -> None:
    told = await samples(metrics(Recorded("a"), Recorded("b", fails="check")))
    assert told["tambo_door_up", "a"] == 1
    assert told["tambo_door_up", "b"] == 0
    assert told["process_resident_memory_bytes",] > 0


async def test_a_door_that_cannot_count_leaves_the_others_their_numbers() -> None:
    other = door(Metric("now", "y", 2))
    assert (await samples(metrics(Recorded("a", fails="metrics"), other)))["tambo_rsmq_now",] == 2


async def test_stats_are_nested_by_door_name_and_labels() -> None:
    jobs = [
        Metric("jobs", "x", n, labels=(("queue", q), ("state", s)))
        for n, q, s in ((1, "a", "waiting"), (2, "a", "dlq"), (3, "b", "dlq"))
    ]
    found = metrics(door(Metric("queues", "y", 2), *jobs), Recorded("http"))
    assert await found.stats() == {
        "rsmq": {"queues": 2, "jobs": {"a": {"waiting": 1, "dlq": 2}, "b": {"dlq": 3}}},
        "http": {},
    }
