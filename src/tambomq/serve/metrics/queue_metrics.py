"""The numbers of queues as metrics, with a bounded number of series. No Redis, no clock.

The first `MAX_QUEUES` queues have series of their own. Those of all others are summed under one
label, so that a producer that invents names cannot fill the memory of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

from tambomq.console.model import PROTOCOLS, QueueRef, QueueRow
from tambomq.console.read.queues.event_times import BOUNDS_S, TimeBuckets
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.serve.component import Metric

MAX_QUEUES: Final = 500
"""Queues with series of their own, the first by protocol and name: about ten for each."""
MAX_TIMED: Final = 100
"""Queues with histograms of their own, the first by name: two of a dozen series for each."""
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
_AGED: Final = ("rsmq", "chasqui")
"""Protocols whose oldest message has an age that is known."""
_GAUGES: Final = {
    "oldest_age_seconds": "Age of the oldest message that could run now; 0 without one.",
    "size_bytes": "Estimated memory of a queue in Redis.",
    "workers": "Workers, peers or consumers that are alive.",
    "paused": "Whether a queue is paused.",
}

_TIMES: Final = {
    "run_times": ("run_seconds", "Time that runs took, of a sample of events."),
    "wait_times": ("wait_seconds", "Time from when a job could run until it ran, of a sample."),
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
    metrics += _times(queues)
    # Samples of one name must be together in the text format.
    return sorted(metrics, key=lambda metric: metric.name)


def _numbers(sample: QueueSample, row: QueueRow) -> Iterator[Number]:
    for state in STATES:
        if (count := getattr(sample, state)) is not None:
            yield "messages", state, count
    for name in _COUNTERS:
        if (count := getattr(sample, name)) is not None:
            yield name, "", count
    if row.protocol in _AGED:
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


def _times(queues: Sampled) -> Iterator[Metric]:
    """Yield the histograms of the queues that have any; those of the others are merged."""
    timed = sorted(ref for ref, (sample, _) in queues.items() if sample.run_times is not None)
    for field, (name, about) in _TIMES.items():
        merged: dict[tuple[str, str], TimeBuckets] = {}
        for place, ref in enumerate(timed):
            found: TimeBuckets = getattr(queues[ref][0], field) or TimeBuckets()
            labels = (ref.protocol, ref.name if place < MAX_TIMED else OTHERS)
            merged[labels] = merged.get(labels, TimeBuckets()).merged(found)
        for (protocol, queue), found in merged.items():
            labels_of = (("protocol", protocol), ("queue", queue))
            buckets = tuple(zip(_BOUNDS, accumulate(found.counts), strict=True))
            yield Metric(name, about, found.sum_s, "histogram", labels_of, buckets)


_BOUNDS: Final = (*map(str, BOUNDS_S), "+Inf")


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
