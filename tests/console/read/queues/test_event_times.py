from __future__ import annotations

from typing import Any

from tambomq.chasqui.job import QueueEvent
from tambomq.console.read.queues.event_times import (
    BOUNDS_S,
    TimeBuckets,
    run_times,
    wait_times,
)
from tambomq.ids import ulid

NOON = 60_000_000_000


def event(at_ms: int, name: str, job: str = "j", **fields: Any) -> QueueEvent:
    return QueueEvent(name, job, "", fields, f"{at_ms}-0")


def test_a_job_waits_from_when_it_could_run_until_it_ran() -> None:
    added = ulid(NOON - 4000)
    events = [
        event(NOON, "active", added, attempt=1),
        event(NOON - 2500, "waiting", "promoted"),
        event(NOON, "active", "promoted", attempt=1),
    ]
    assert wait_times(events) == [((NOON, 0), 4.0), ((NOON, 0), 2.5)]


def test_the_wait_of_a_delayed_job_is_not_guessed() -> None:
    delayed = ulid(NOON - 60_000)
    events = [
        event(NOON - 60_000, "delayed", delayed),
        event(NOON, "active", delayed, attempt=1),
        event(NOON, "active", "an id of its own", attempt=1),
    ]
    assert wait_times(events) == []


def test_runs_that_ended_have_taken_as_long_as_their_events_say() -> None:
    events = [
        event(NOON, "completed", duration_us=2_000_000),
        event(NOON, "failed", duration_us=500_000),
        event(NOON, "failed", duration_us="soon"),
        event(NOON, "active", duration_us=1),
    ]
    assert run_times(events) == [((NOON, 0), 2.0), ((NOON, 0), 0.5)]


def test_each_time_falls_into_the_first_bucket_that_it_does_not_exceed() -> None:
    found = TimeBuckets().plus([0, BOUNDS_S[0], BOUNDS_S[0] * 1.01, BOUNDS_S[-1] + 1])
    assert found.counts == (2, 1, *([0] * (len(BOUNDS_S) - 2)), 1)
    assert found.sum_s == BOUNDS_S[0] * 2.01 + BOUNDS_S[-1] + 1
    twice = found.merged(found)
    assert (twice.counts[0], twice.sum_s) == (4, 2 * found.sum_s)
