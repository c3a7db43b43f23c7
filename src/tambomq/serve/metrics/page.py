"""The metrics of all components, for Prometheus (``/metrics``) and as JSON (``/stats``)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tambomq.errors import TamboError
from tambomq.runtime.coalesced import Coalesced
from tambomq.serve.component import Component, Metric
from tambomq.serve.health import MAX_AGE_S, ComponentStatus, ProcessHealth
from tambomq.text import spelled_out

_PREFIX: Final = "tambo"
# Prometheus's default scrape timeout is ten seconds.
_COUNT_WITHIN_S: Final = 5.0
_LABEL_CHARS: Final = 200

_log = logging.getLogger(__name__)

Numbers = Mapping[str, Sequence[Metric]]


class Metrics:
    """The numbers of all started components, and of the process itself."""

    def __init__(self, health: ProcessHealth) -> None:
        self._health = health
        self._numbers = Coalesced(self._count, MAX_AGE_S)
        self._collector = _Collector()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self._collector)

    async def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        numbers, statuses = await asyncio.gather(self._numbers.get(), self._health.look())
        self._collector.families = [*_up(statuses), *_families(numbers)]
        # Formatting a thousand queues takes a while: keep the event loop free meanwhile.
        return await asyncio.to_thread(generate_latest, self._registry)

    async def stats(self) -> dict[str, dict[str, Any]]:
        """Return numbers by component and name, then by the values of their labels."""
        numbers = await self._numbers.get()
        return {component: _nested(metrics) for component, metrics in numbers.items()}

    async def _count(self) -> Numbers:
        components = self._health.started_components
        metrics = await asyncio.gather(*map(_metrics, components))
        return {component.name: found for component, found in zip(components, metrics, strict=True)}


class _Collector:
    """Gives the registry families that were collected before: `collect` cannot await."""

    def __init__(self) -> None:
        self.families: Sequence[Family] = ()

    def collect(self) -> Iterable[Family]:
        return self.families


async def _metrics(component: Component) -> Sequence[Metric]:
    try:
        async with asyncio.timeout(_COUNT_WITHIN_S):
            return await component.metrics()
    except (TamboError, TimeoutError) as error:
        # `tambo_component_up` shows it; report the numbers of the others.
        _log.debug(
            "no metrics from %s: %s", component.name, error, extra={"component": component.name}
        )
    except Exception:  # noqa: BLE001  (a bug in one component must not hide the others' numbers)
        _log.exception("no metrics from %s", component.name, extra={"component": component.name})
    return ()


def _up(statuses: Mapping[str, ComponentStatus]) -> Iterator[Family]:
    up = GaugeMetricFamily(
        f"{_PREFIX}_component_up", "Whether a component serves.", labels=("component",)
    )
    for component, status in statuses.items():
        up.add_metric((component,), float(status.ok))
    yield up


def _families(numbers: Numbers) -> Iterator[Family]:
    for component, metrics in numbers.items():
        families: dict[str, Any] = {}
        for metric in metrics:
            family = families.get(metric.name)
            if family is None:
                names = [name for name, _ in metric.labels]
                name = f"{_PREFIX}_{component}_{metric.name}"
                family = _KINDS[metric.kind](name, metric.about, labels=names)
                families[metric.name] = family
            labels = [_text(value) for _, value in metric.labels]
            if metric.kind == "histogram":
                family.add_metric(labels, metric.buckets, metric.value)
            else:
                family.add_metric(labels, metric.value)
        yield from families.values()


_KINDS: Final[dict[str, Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _nested(metrics: Sequence[Metric]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for metric in metrics:
        *path, last = (metric.name, *(_text(value) for _, value in metric.labels))
        branch = tree
        for name in path:
            branch = branch.setdefault(name, {})
        branch[last] = _value(metric)
    return tree


def _value(metric: Metric) -> Any:
    if metric.kind != "histogram":
        return metric.value
    return {"count": metric.buckets[-1][1], "sum": metric.value, "up_to": dict(metric.buckets)}


def _text(value: str) -> str:
    """Return a label value of bounded length, with what cannot be printed escaped."""
    text = spelled_out(value)
    if len(text) <= _LABEL_CHARS:
        return text
    # Two long names that begin alike must not become one series.
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[:_LABEL_CHARS]}…{digest}"
