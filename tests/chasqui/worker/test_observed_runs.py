"""Observed runs: each ends once, with what Redis has decided. No server."""

from __future__ import annotations

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.worker.observed_runs import LOST, UNANSWERED, ObservedRuns, Run, observed
from tests.runtime.test_observer import Recorder


def run(entry: str) -> Run:
    return Run(entry, Envelope(f"job {entry}", b"", 0, 1), "mail", 0, 7)


def test_a_run_is_reported_when_redis_has_taken_it() -> None:
    recorder = Recorder()
    runs = ObservedRuns(recorder, "q")
    runs.begin("job 1", "mail", 2)
    runs.hold(run("1"), "retried", 5, "KeyError: 1")
    assert (recorder.handled, recorder.ended) == ([("q", "job 1")], [])
    for _ in range(2):
        runs.settled(["1", "unknown"])
    (record,) = recorder.ended
    assert (record.queue, record.id, record.name, record.attempt) == ("q", "job 1", "mail", 2)
    assert (record.outcome, record.waited_ms, record.took_us) == ("retried", 7, 5)
    assert record.error == "KeyError: 1"


def test_each_run_ends_once_whatever_becomes_of_it() -> None:
    recorder = Recorder()
    runs = ObservedRuns(recorder, "q")
    for entry in "123":
        runs.hold(run(entry), "completed", 5)
    runs.end(run("4"), "returned", 5)
    runs.cancelled({"1": "not needed", "9": ""})
    runs.lost(["2"])
    for _ in range(2):
        runs.close()
        runs.settled("123")
    assert {each.id: (each.outcome, each.error) for each in recorder.ended} == {
        "job 4": ("returned", ""),
        "job 1": ("cancelled", "CancelJob: not needed"),
        "job 2": ("lost", LOST),
        "job 3": ("lost", UNANSWERED),
    }
    assert len(recorder.ended) == len(recorder.handled) == 4


def test_without_an_observer_runs_are_not_observed() -> None:
    assert observed(None, "q") is None
