from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tambomq.serve.component import Metric
from tambomq.serve.health import ProcessHealth
from tambomq.serve.metrics.page import Metrics
from tests.serve.components import Recorded


def metrics(*components: Recorded) -> Metrics:
    health = ProcessHealth()
    health.expect(components)
    for component in components:
        health.started(component)
    return Metrics(health)


def component(*numbers: Metric) -> Recorded:
    recorded = Recorded("rsmq")
    recorded.numbers = numbers
    return recorded


async def samples(found: Metrics) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families((await found.text()).decode())
    return {(s.name, *s.labels.values()): s.value for f in families for s in f.samples}


async def test_a_counter_ends_in_total_and_a_gauge_does_not() -> None:
    found = await samples(
        metrics(component(Metric("sent", "x", 3, "counter"), Metric("now", "y", 2)))
    )
    assert found["tambo_rsmq_sent_total",] == 3
    assert found["tambo_rsmq_now",] == 2


async def test_the_metrics_of_one_name_are_one_family() -> None:
    numbers = [Metric("m", "x", n, labels=(("queue", q),)) for n, q in ((1, "a"), (2, 'b"\n\\'))]
    exported = metrics(component(*numbers))
    found = await samples(exported)
    assert found["tambo_rsmq_m", "a"] == 1
    assert found["tambo_rsmq_m", 'b"\\n\\'] == 2
    assert (await exported.text()).count(b"# TYPE tambo_rsmq_m gauge") == 1


async def test_a_label_that_is_not_utf8_is_escaped() -> None:
    odd = Metric("m", "x", 1, labels=(("queue", "a\udcff"),))
    assert (await samples(metrics(component(odd))))["tambo_rsmq_m", "a\\udcff"] == 1


async def test_long_label_values_are_cut_and_stay_different() -> None:
    long = [Metric("m", "x", n, labels=(("queue", "q" * 5000 + str(n)),)) for n in (1, 2)]
    found = await samples(metrics(component(*long)))
    names = [key[1] for key in found if key[0] == "tambo_rsmq_m"]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 220


async def test_the_process_and_each_component_have_metrics() -> None:
    found = await samples(metrics(Recorded("a"), Recorded("b", fails="check")))
    assert found["tambo_component_up", "a"] == 1
    assert found["tambo_component_up", "b"] == 0
    assert found["process_resident_memory_bytes",] > 0


async def test_a_component_that_cannot_count_leaves_the_others_their_numbers() -> None:
    other = component(Metric("now", "y", 2))
    assert (await samples(metrics(Recorded("a", fails="metrics"), other)))["tambo_rsmq_now",] == 2


async def test_a_histogram_has_buckets_a_count_and_a_sum() -> None:
    buckets = (("0.1", 2), ("1.0", 3), ("+Inf", 4))
    took = Metric("took", "x", 7.5, "histogram", (("queue", "a"),), buckets)
    exported = metrics(component(took))
    found = await samples(exported)
    assert [found["tambo_rsmq_took_bucket", bound, "a"] for bound, _ in buckets] == [2, 3, 4]
    assert (found["tambo_rsmq_took_count", "a"], found["tambo_rsmq_took_sum", "a"]) == (4, 7.5)
    up_to = {"0.1": 2, "1.0": 3, "+Inf": 4}
    stats = await exported.stats()
    assert stats["rsmq"]["took"] == {"a": {"count": 4, "sum": 7.5, "up_to": up_to}}


async def test_stats_are_nested_by_component_name_and_labels() -> None:
    jobs = [
        Metric("jobs", "x", n, labels=(("queue", q), ("state", s)))
        for n, q, s in ((1, "a", "waiting"), (2, "a", "dlq"), (3, "b", "dlq"))
    ]
    found = metrics(component(Metric("queues", "y", 2), *jobs), Recorded("http"))
    assert await found.stats() == {
        "rsmq": {"queues": 2, "jobs": {"a": {"waiting": 1, "dlq": 2}, "b": {"dlq": 3}}},
        "http": {},
    }
