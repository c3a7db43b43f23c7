from __future__ import annotations

from tambomq.chasqui.job import QueueEvent
from tambomq.console.read.queues.run_events import EVENTS, RunSummary, summary

NOW = 1_000_000_000


def event(ago_ms: int, name: str, number: int = 0) -> QueueEvent:
    return QueueEvent(name, "j", "", {}, f"{NOW - ago_ms}-{number}")


def test_failures_of_the_last_ten_seconds_make_the_rate() -> None:
    events = [event(0, "failed"), event(9000, "failed"), event(11_000, "failed"), event(0, "dlq")]
    found = summary(events, NOW)
    assert (found.runs, found.failed, found.failed_per_s) == (3, 3, 0.2)


def test_a_page_that_does_not_reach_back_covers_less_time() -> None:
    events = [event(n * 5, "failed" if n % 2 else "completed") for n in range(EVENTS)]
    found = summary(events, NOW)
    assert (found.runs, found.failed) == (EVENTS, EVENTS // 2)
    assert round(found.failed_per_s) == 101


def test_failures_are_counted_once() -> None:
    first = summary([event(5000, "failed", 1), event(5000, "failed")], NOW)
    again = summary([event(5000, "failed", 1), event(5000, "failed")], NOW, first)
    more = [event(100, "failed"), event(5000, "failed", 1), event(5000, "failed")]
    assert (first.failed_total, again.failed_total) == (0, 0)
    assert summary(more, NOW, again).failed_total == 1


def test_failures_that_were_not_seen_are_estimated() -> None:
    first = summary([event(8000, "failed")], NOW - 8000)
    busy = [event(n * 10, "failed") for n in range(EVENTS)]
    assert summary(busy, NOW, first).failed_total == round(8 * 200 / 1.99)


def test_damaged_ids_are_no_reason_to_fail() -> None:
    assert summary([QueueEvent("failed", None, "", {}, "x")], NOW).failed_per_s == 0


def test_the_times_of_a_run_are_counted_once() -> None:
    def looked_at(*events: QueueEvent, before: RunSummary | None = None) -> RunSummary:
        return summary(events, NOW, before)

    old = [timed(3000, "completed"), timed(3000, "active"), timed(3500, "waiting")]
    new = [timed(100, "failed"), timed(200, "active"), timed(700, "waiting")]
    first = looked_at(*old)
    assert (sum(first.run_times.counts), sum(first.wait_times.counts)) == (0, 0)
    second = looked_at(*new, *old, before=first)
    assert (sum(second.run_times.counts), second.run_times.sum_s) == (1, 0.25)
    assert (sum(second.wait_times.counts), second.wait_times.sum_s) == (1, 0.5)
    assert looked_at(*new, *old, before=second).run_times == second.run_times


def test_a_job_whose_wait_began_before_the_last_look_is_timed_when_it_runs() -> None:
    first = summary([timed(5000, "waiting")], NOW)
    then = summary([timed(1000, "active"), timed(5000, "waiting")], NOW, first)
    assert then.wait_times.sum_s == 4


def timed(ago_ms: int, name: str) -> QueueEvent:
    fields = {"attempt": 1, "duration_us": 250_000}
    return QueueEvent(name, "j", "", fields, f"{NOW - ago_ms}-0")
