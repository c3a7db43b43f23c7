"""What all doors have counted, for Prometheus and as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from tambomq.errors import TamboError
from tambomq.serve.door import Door, Metric
from tambomq.serve.health import LOOK_EVERY_S, Coalesced, Health, Verdict

_PREFIX: Final = "tambo"
# Prometheus waits for ten seconds.
_COUNT_WITHIN_S: Final = 5.0

_log = logging.getLogger(__name__)

Numbers = Mapping[str, Sequence[Metric]]


class Metrics:
    """The numbers of all doors that are open, with those of the process."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._numbers = Coalesced(self._count, LOOK_EVERY_S)
        self._collector = _Collector()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(self._collector)

    async def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        numbers, verdicts = await asyncio.gather(self._numbers.get(), self._health.look())
        self._collector.told = [*_up(verdicts), *_families(numbers)]
        # A thousand queues take a while to be written down; others are to be served meanwhile.
        return await asyncio.to_thread(generate_latest, self._registry)

    async def stats(self) -> dict[str, dict[str, Any]]:
        """Return the doors' numbers by door and name; those with labels by their values."""
        return {door: _nested(found) for door, found in (await self._numbers.get()).items()}

    async def _count(self) -> Numbers:
        doors = self._health.open_doors
        counted = await asyncio.gather(*map(_counted, doors))
        return {door.name: found for door, found in zip(doors, counted, strict=True)}


class _Collector:
    """Hands the registry what was found before it was asked: it cannot wait."""

    def __init__(self) -> None:
        self.told: Sequence[Family] = ()

    def collect(self) -> Iterable[Family]:
        return self.told


async def _counted(door: Door) -> Sequence[Metric]:
    try:
        async with asyncio.timeout(_COUNT_WITHIN_S):
            return await door.metrics()
    except (TamboError, TimeoutError) as error:
        # `tambo_door_up` tells; the numbers of the others are still good.
        _log.debug("no numbers of %s: %s", door.name, error)
    except Exception:  # noqa: BLE001  (nor does a bug of one door take them away)
        _log.exception("no numbers of %s", door.name)
    return ()


def _up(verdicts: Mapping[str, Verdict]) -> Iterator[Family]:
    up = GaugeMetricFamily(f"{_PREFIX}_door_up", "Whether a door serves.", labels=("door",))
    for door, verdict in verdicts.items():
        up.add_metric((door,), float(verdict.ok))
    yield up


def _families(numbers: Numbers) -> Iterator[Family]:
    for door, metrics in numbers.items():
        found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for metric in metrics:
            family = found.get(metric.name)
            if family is None:
                make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                names = [name for name, _ in metric.labels]
                family = make(f"{_PREFIX}_{door}_{metric.name}", metric.about, labels=names)
                found[metric.name] = family
            family.add_metric([_text(value) for _, value in metric.labels], metric.value)
        yield from found.values()


def _nested(metrics: Sequence[Metric]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for metric in metrics:
        *path, last = (metric.name, *(_text(value) for _, value in metric.labels))
        place = told
        for name in path:
            place = place.setdefault(name, {})
        place[last] = metric.value
    return told


def _text(value: str) -> str:
    """Return a name that somebody else chose as text that can be encoded."""
    return value.encode("utf-8", "backslashreplace").decode()
