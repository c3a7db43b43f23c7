"""The page as Prometheus reads it: its own parser is asked."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tambomq.work.messages import BUCKETS_S, MAX_NAMES, OTHER, RunCounts
from tambomq.work.supervisor.health import ProcessStatus
from tambomq.work.supervisor.metrics import page
from tambomq.work.supervisor.totals import TotalCounts

ODD = 'a"b\\c\nd\ud800'


def counts(queue: str, job: str, bucket: int) -> RunCounts:
    buckets = [0] * (len(BUCKETS_S) + 1)
    buckets[bucket] = 2
    return RunCounts(queue, job, {"completed": 1, "dead": 1}, 1, buckets, 3.5, list(buckets), 0.25)


def samples(totals: TotalCounts) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = page(totals, [], {1: ProcessStatus(ok=True, pid=7, why="")})
    assert text.encode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_all_processes_have_run() -> None:
    totals = TotalCounts()
    totals.add([counts("mail", "welcome", 0)])
    totals.add([counts("mail", "welcome", len(BUCKETS_S)), counts("mail", ODD, 1)])
    found = samples(totals)
    job = {("queue", "mail"), ("job", "welcome")}

    def value(name: str, *labels: tuple[str, str]) -> float:
        return found[f"tambo_work_{name}", frozenset(job | set(labels))]

    assert value("runs_total", ("outcome", "completed")) == 2
    assert value("runs_total", ("outcome", "cancelled")) == 0
    assert value("failures_total") == 2
    assert value("run_seconds_bucket", ("le", "0.001")) == 2
    assert value("run_seconds_bucket", ("le", "1800.0")) == 2
    assert value("run_seconds_bucket", ("le", "+Inf")) == 4
    assert (value("run_seconds_sum"), value("run_seconds_count")) == (0.5, 4)
    assert value("wait_seconds_sum") == 7.0
    odd = frozenset({("queue", "mail"), ("job", 'a"b\\c\nd\\ud800')})
    assert found["tambo_work_failures_total", odd] == 1
    assert found["tambo_work_process_up", frozenset({("process", "1")})] == 1


def test_the_page_is_whole_before_anything_has_run() -> None:
    assert ("tambo_work_processes", frozenset()) in samples(TotalCounts())


def test_processes_one_after_the_other_count_no_more_names_than_one() -> None:
    totals = TotalCounts()
    for process in range(3):
        names = (f"{process}-{number}" for number in range(MAX_NAMES))
        totals.add([counts("mail", name, 0) for name in names])
    totals.add([counts("mail", "0-0", 0), counts("bills", "first", 0)])
    runs = {(each.queue, each.job): each.failures for each in totals}
    assert len(runs) == MAX_NAMES + 2
    assert runs["mail", OTHER] == 2 * MAX_NAMES
    assert (runs["mail", "0-0"], runs["bills", "first"]) == (2, 1)
