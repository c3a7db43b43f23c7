"""The page ``/metrics``: numbers of all processes, in Prometheus's text format.

Written here rather than by prometheus-client, so that ``tambo work`` needs no more than its command
line. Labels are bounded: a process by its number, a job by at most 100 names in each queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import tambomq
from tambomq.work.messages import BUCKETS_S, RunCounts
from tambomq.work.supervisor.health import ProcessStatus
from tambomq.work.supervisor.slot import ProcessSlot
from tambomq.work.supervisor.totals import TotalCounts

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES: Final = ("completed", "retried", "dead", "cancelled", "returned", "lost")
CAUSES: Final = ("died", "failed", "max_jobs", "max_rss", "reload")

_PREFIX: Final = "tambo_work_"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, object]
Sample = tuple[str, Labels, float]


def page(
    totals: TotalCounts, slots: Sequence[ProcessSlot], statuses: Mapping[int, ProcessStatus]
) -> str:
    """Return all metrics."""
    families = [*_of_runs(list(totals)), *_of_processes(slots, statuses)]
    return "".join(line + "\n" for family in families for line in family)


def _of_runs(counts: Sequence[RunCounts]) -> Iterator[Iterable[str]]:
    yield _family(
        *("runs_total", "counter", "Runs that ended, by outcome."),
        [
            ("runs_total", {**_job(each), "outcome": outcome}, each.outcomes.get(outcome, 0))
            for each in counts
            for outcome in OUTCOMES
        ],
    )
    yield _family(
        *("failures_total", "counter", "Runs whose handler raised."),
        [("failures_total", _job(each), each.failures) for each in counts],
    )
    yield _family(
        *("wait_seconds", "histogram", "Time from when a job could run until it ran."),
        [
            sample
            for each in counts
            for sample in _histogram("wait_seconds", _job(each), each.wait_buckets, each.wait_s)
        ],
    )
    yield _family(
        *("run_seconds", "histogram", "Time that handlers took."),
        [
            sample
            for each in counts
            for sample in _histogram("run_seconds", _job(each), each.run_buckets, each.run_s)
        ],
    )


def _of_processes(
    slots: Sequence[ProcessSlot], statuses: Mapping[int, ProcessStatus]
) -> Iterator[Iterable[str]]:
    reports = {s.number: s.child.report for s in slots if s.child and s.child.report}
    yield _gauge("info", "The version.", [({"version": tambomq.__version__}, 1)])
    yield _gauge("processes", "Processes that should run.", [({}, len(slots))])
    yield _gauge(
        *("process_up", "Whether a process consumes, as in /healthz."),
        [({"process": number}, status.ok) for number, status in statuses.items()],
    )
    queues = [
        ({"process": number, "queue": each.queue}, each)
        for number, report in reports.items()
        for each in report.queues
    ]
    yield _gauge(
        *("in_flight", "Jobs that a process has read and not settled."),
        [(labels, each.in_flight) for labels, each in queues],
    )
    yield _gauge(
        *("concurrency", "Jobs that a process runs at a time."),
        [(labels, each.concurrency) for labels, each in queues],
    )
    yield _gauge(
        *("process_resident_memory_bytes", "Resident memory of a process."),
        [({"process": number}, report.rss_bytes) for number, report in reports.items()],
    )
    yield _gauge(
        *("process_blocked_seconds", "For how long the event loop has not answered."),
        [({"process": number}, report.blocked_s) for number, report in reports.items()],
    )
    yield _family(
        *("process_restarts_total", "counter", "Processes that were replaced, by cause."),
        [
            ("process_restarts_total", {"process": s.number, "cause": cause}, s.restarts[cause])
            for s in slots
            for cause in CAUSES
        ],
    )


def _job(counts: RunCounts) -> Labels:
    return {"queue": counts.queue, "job": counts.job}


def _gauge(name: str, about: str, samples: Iterable[tuple[Labels, float]]) -> Iterable[str]:
    return _family(name, "gauge", about, [(name, labels, value) for labels, value in samples])


def _histogram(
    name: str, labels: Labels, buckets: Sequence[int], total_s: float
) -> Iterator[Sample]:
    count = 0
    for bound, more in zip((*map(_number, BUCKETS_S), "+Inf"), buckets, strict=True):
        count += more
        yield f"{name}_bucket", {**labels, "le": bound}, count
    yield f"{name}_sum", labels, total_s
    yield f"{name}_count", labels, count


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {about}"
    yield f"# TYPE {_PREFIX}{name} {kind}"
    for sample, labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels.items())
        yield (
            f"{_PREFIX}{sample}{{{inside}}} {_number(value)}"
            if inside
            else (f"{_PREFIX}{sample} {_number(value)}")
        )


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def _escaped(value: object) -> str:
    # A name from Redis may contain lone surrogates, which UTF-8 cannot encode.
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return text.translate(_ESCAPES)
