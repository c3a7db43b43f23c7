from __future__ import annotations

from tambomq.runtime.observer import RunRecord
from tambomq.work.messages import BUCKETS_S, MAX_NAMES, OTHER
from tambomq.work.process.run_recorder import RunRecorder


def ran(name: str = "welcome", outcome: str = "completed", error: str = "") -> RunRecord:
    return RunRecord("mail", "w-7", name, 1, outcome, 2_000, 3_000, error)  # type: ignore[arg-type]


def test_runs_are_counted_by_queue_job_and_outcome() -> None:
    recorder = RunRecorder()
    recorder.run_ended(ran())
    recorder.run_ended(ran(outcome="retried", error="ValueError"))
    recorder.run_ended(ran(outcome="cancelled", error="CancelJob"))
    (counts,) = recorder.take()
    assert (counts.queue, counts.job, counts.failures) == ("mail", "welcome", 1)
    assert counts.outcomes == {"completed": 1, "retried": 1, "cancelled": 1}
    assert counts.wait_buckets[BUCKETS_S.index(2.5)] == 3
    assert counts.run_buckets[BUCKETS_S.index(0.005)] == 3
    assert (counts.wait_s, round(counts.run_s, 6)) == (6.0, 0.009)
    assert recorder.take() == []


def test_job_names_beyond_the_limit_are_counted_together() -> None:
    recorder = RunRecorder()
    for number in range(MAX_NAMES + 50):
        recorder.run_ended(ran(f"job-{number}"))
    counts = {each.job: each.outcomes["completed"] for each in recorder.take()}
    assert len(counts) == MAX_NAMES + 1
    assert counts[OTHER] == 50


def test_the_oldest_running_job_is_known() -> None:
    recorder = RunRecorder()
    assert recorder.oldest() is None
    for id in ("w-7", "w-8"):
        recorder.run_started("mail", id, "welcome", 1)
    oldest = recorder.oldest()
    assert oldest is not None
    assert oldest.id == "w-7"
    recorder.handler_ended("mail", "w-7")
    assert str(recorder.oldest()) == "mail welcome w-8"


def test_the_job_limit_is_reported_once() -> None:
    reported: list[str] = []
    recorder = RunRecorder(
        lambda record: reported.append(record.id), 2, lambda: reported.append("enough")
    )
    for _ in range(3):
        recorder.handler_ended("mail", "w-7")
        recorder.run_ended(ran())
    assert reported == ["w-7", "enough", "w-7", "w-7"]
