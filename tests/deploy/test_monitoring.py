"""The dashboard and the alert rules use metrics that ``tambo serve`` really serves."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tambomq.chasqui import BlockingQueue
from tambomq.gomq import GomqClient
from tambomq.kqueue import Producer
from tambomq.rsmq import Rsmq
from tests.deploy.reading import DEPLOY
from tests.serve.processes import Serving, serving
from tests.servers import eventually

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/tambo.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())[
    "groups"
][0]["rules"]

_METRIC = re.compile(r"\b(tambo_\w+)(?:\{([^}]*)\})?")
_PART = re.compile(r"_(count|sum)$")
_LABEL = re.compile(r"(\w+)\s*[=!]~?\s*\"")
# Prometheus itself adds it to each sample.
_ADDED = {"instance"}
# Operators of work have a dashboard of their own, and a journal's readers are the pipeline's.
_NOT_SHOWN = re.compile(
    r"tambo_journal_(journals|entries)|tambo_kqueue_(connections|accepted|probes|(un)?recorded"
    r"|\w+_timeouts)(_total)?"
)


def expressions() -> list[str]:
    """All PromQL of the dashboard and of the rules."""
    shown = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked = [each["query"] for each in DASHBOARD["templating"]["list"][1:]]
    return [*shown, *asked, *(rule["expr"] for rule in RULES)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Every metric of a server with a queue of each protocol, and the labels it has."""
    with serving(tmp_path_factory.mktemp("served"), "--journal", "gomq:*") as serve:
        with Rsmq(serve.url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.set_queue_bounds("orders", max_messages=10)
        with BlockingQueue("emails", redis_url=serve.url) as queue:
            queue.add("x", 1)
        with GomqClient(serve.address("gomq")) as client:
            client.publish("news", "hello")
        host, _, port = serve.address("kqueue").rpartition(":")
        with Producer(host, int(port)) as producer:
            producer.send("ticks", "hello")
        yield eventually(lambda: _complete(serve), within_s=60)


def _complete(serve: Serving) -> dict[str, set[str]]:
    """The metrics once all four queues are in them, and the bounds of one; empty before."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    queues = set()
    for family in text_string_to_metric_families(serve.get("/metrics")[1]):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
            queues.add((sample.name, sample.labels.get("queue")))
    entered = {queue for name, queue in queues if name == "tambo_queue_entered_total"}
    is_complete = entered == {"orders", "emails", "news", "ticks"} and found.keys() >= {
        "tambo_journal_bytes",
        "tambo_rsmq_expired_total",
    }
    return found if is_complete else {}


def test_every_metric_that_is_asked_for_is_served_with_its_labels(
    served: dict[str, set[str]],
) -> None:
    for expression in expressions():
        names = _METRIC.findall(expression)
        assert names, expression
        for name, selector in names:
            assert name in served, f"{name} is not served: {expression}"
            unknown = set(_LABEL.findall(selector)) - served[name]
            assert not unknown, f"{name} has no {unknown}: {expression}"


def test_sums_and_matches_are_by_labels_that_are_there(served: dict[str, set[str]]) -> None:
    for expression in expressions():
        labels = set[str]().union(*(served[name] for name, _ in _METRIC.findall(expression)))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            unknown = set(re.split(r",\s*", group)) - labels - _ADDED
            assert not unknown, f"{unknown}: {expression}"


def test_the_dashboard_shows_every_metric_of_queues_and_protocols(
    served: dict[str, set[str]],
) -> None:
    shown = {name for each in expressions() for name, _ in _METRIC.findall(each)}
    ours = {name for name in served if name.startswith("tambo_")}
    # Quantiles are made of the buckets of a histogram.
    parts = {name for name in ours if f"{_PART.sub('', name)}_bucket" in shown}
    assert {name for name in ours - shown - parts if not _NOT_SHOWN.fullmatch(name)} == set()


def test_names_follow_the_conventions(served: dict[str, set[str]]) -> None:
    for name in served:
        is_part = f"{_PART.sub('', name)}_bucket" in served
        if name.startswith("tambo_") and not is_part:
            assert not re.search(r"_(ms|millis|minutes|kb|mb|count|sum)(_total)?$", name)


def test_a_rule_says_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_legends_name_labels_that_their_expression_keeps(served: dict[str, set[str]]) -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            kept = re.search(r"\bby \(([^)]*)\)", target["expr"])
            names = [served[name] for name, _ in _METRIC.findall(target["expr"])]
            labels = set(re.split(r",\s*", kept[1])) if kept else set[str]().union(*names)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def test_panels_neither_overlap_nor_share_an_id() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
