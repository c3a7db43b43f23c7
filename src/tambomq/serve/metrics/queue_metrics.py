"""The numbers of queues as metrics, with a bounded number of series. No Redis, no clock.

The first `MAX_QUEUES` queues have series of their own. Those of all others are summed under one
label, so that a producer that invents names cannot fill the memory of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from tambomq.console.model import PROTOCOLS, QueueRef, QueueRow
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.serve.component import Metric

MAX_QUEUES: Final = 500
"""Queues with series of their own, the first by protocol and name: about ten for each."""
OTHERS: Final = "_other"
"""The label of all other queues of a protocol."""

STATES: Final = ("visible", "in_flight", "delayed", "dead")
_COUNTERS: Final = {
    "entered": "Messages that entered a queue.",
    "left": "Messages that left a queue, whatever their outcome.",
    "received": "Receives of an RSMQ queue, repeated ones included.",
    "failed": "Runs that failed, estimated from a sample of events.",
    "died": "Messages that became dead letters.",
}
_GAUGES: Final = {
    "oldest_age_seconds": "Age of the oldest message that could run now; 0 without one.",
    "size_bytes": "Estimated memory of a queue in Redis.",
    "workers": "Workers, peers or consumers that are alive.",
    "paused": "Whether a queue is paused.",
}

Sampled = Mapping[QueueRef, tuple[QueueSample, QueueRow]]
Number = tuple[str, str, float]
"""Name, state or empty, value."""


def queue_metrics(queues: Sampled, unread: int) -> list[Metric]:
    """Return the metrics of *queues*; *unread* others were found and not read."""
    own = sorted(queues)[:MAX_QUEUES]
    others = [ref for ref in queues if ref not in set(own)]
    metrics = [*_listed(own), *_left_out(len(others), unread)]
    for ref in own:
        for name, state, value in _numbers(*queues[ref]):
            metrics.append(_metric(name, state, value, (ref.protocol, ref.name)))
        metrics += _trouble(ref, queues[ref][1])
    metrics += _summed(queues, others)
    # Samples of one name must be together in the text format.
    return sorted(metrics, key=lambda metric: metric.name)


def _numbers(sample: QueueSample, row: QueueRow) -> Iterator[Number]:
    for state in STATES:
        if (count := getattr(sample, state)) is not None:
            yield "messages", state, count
    for name in _COUNTERS:
        if (count := getattr(sample, name)) is not None:
            yield name, "", count
    if sample.visible is not None:
        yield "oldest_age_seconds", "", sample.oldest_s or 0.0
    if row.size_bytes is not None:
        yield "size_bytes", "", row.size_bytes
    if sample.workers is not None:
        yield "workers", "", sample.workers
    if row.protocol == "chasqui":
        yield "paused", "", float(sample.paused)


def _summed(queues: Sampled, others: Sequence[QueueRef]) -> Iterator[Metric]:
    """Yield the sums of the other queues of each protocol; of ages, the highest."""
    sums: dict[tuple[str, str, str], float] = {}
    for ref in others:
        for name, state, value in _numbers(*queues[ref]):
            key = (ref.protocol, name, state)
            before = sums.get(key, 0.0)
            sums[key] = max(before, value) if name == "oldest_age_seconds" else before + value
    for (protocol, name, state), value in sums.items():
        yield _metric(name, state, value, (protocol, OTHERS))


def _metric(name: str, state: str, value: float, queue: tuple[str, str]) -> Metric:
    labels = (("protocol", queue[0]), ("queue", queue[1]))
    if name == "messages":
        about = "Messages of a queue, by where they are."
        return Metric(name, about, value, labels=(*labels, ("state", state)))
    kind: Literal["counter", "gauge"] = "counter" if name in _COUNTERS else "gauge"
    return Metric(name, (_COUNTERS | _GAUGES)[name], value, kind, labels)


def _trouble(ref: QueueRef, row: QueueRow) -> Iterator[Metric]:
    if row.trouble is not None:
        labels = (("protocol", ref.protocol), ("queue", ref.name))
        kinds = (("kind", row.trouble.kind), ("severity", row.trouble.severity))
        about = "1 for a queue that needs a look, as the console shows it."
        yield Metric("trouble", about, 1, labels=(*labels, *kinds))


def _listed(own: Sequence[QueueRef]) -> Iterator[Metric]:
    for protocol in PROTOCOLS:
        count = sum(ref.protocol == protocol for ref in own)
        about = "Queues with series of their own."
        yield Metric("listed", about, count, labels=(("protocol", protocol),))


def _left_out(summed: int, unread: int) -> Iterator[Metric]:
    about = f"Queues without series of their own: summed as {OTHERS}, or not read at all."
    for how, count in (("summed", summed), ("unread", unread)):
        yield Metric("left_out", about, count, labels=(("how", how),))
