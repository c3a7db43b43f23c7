"""Observers of runs: told once at each end, and harmless when they fail."""

from __future__ import annotations

import logging

import pytest

from tambomq.runtime.observer import RunRecord, begin_run, guarded


class Recorder:
    """Records what it is told; raises if *fails*."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.started: list[tuple[str, str, str, int]] = []
        self.handled: list[tuple[str, str]] = []
        self.ended: list[RunRecord] = []

    def run_started(self, queue: str, id: str, name: str, attempt: int) -> None:
        self.started.append((queue, id, name, attempt))
        if self.fails:
            raise ValueError("start")

    def handler_ended(self, queue: str, id: str) -> None:
        self.handled.append((queue, id))
        if self.fails:
            raise ValueError("handled")

    def run_ended(self, record: RunRecord) -> None:
        self.ended.append(record)
        if self.fails:
            raise ValueError("end")


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_is_reported_whether_the_observer_fails_or_not(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(fails=fails)
    with caplog.at_level(logging.ERROR):
        begin_run(guarded(recorder), "q", "a", 2, 7)("dead", "KeyError: 1")
    assert recorder.started == [("q", "a", "", 2)]
    (record,) = recorder.ended
    assert (record.outcome, record.error, record.waited_ms) == ("dead", "KeyError: 1", 7)
    assert recorder.handled == [("q", "a")]
    assert len(caplog.records) == (3 if fails else 0)


def test_without_an_observer_nothing_is_reported() -> None:
    assert guarded(None) is None
    begin_run(None, "q", "a", 1, 0)("completed", "")
