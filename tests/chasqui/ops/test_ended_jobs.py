"""The ends of jobs, as found in the events stream."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import ended_jobs as module
from tambomq.chasqui.ops import events as event_ops
from tambomq.chasqui.ops.ended_jobs import (
    PAGE,
    EndedJobs,
    JobEnd,
    LookBackLimit,
    first_look_back,
    second_look_back,
)
from tambomq.ids import ulid
from tambomq.store.sync import Store
from tests.chasqui.leading import envelope

KEYS = Keys("q")


def event(ms: int, name: str, job: str | None = "a", **fields: Any) -> QueueEvent:
    return QueueEvent(name, job, "", fields, f"{ms}-0")


def after(*events: QueueEvent) -> EndedJobs:
    ends = EndedJobs()
    ends.append("0-0", events)
    return ends


def test_the_latest_end_counts() -> None:
    ends = after(event(1, "dlq", reason="x"), event(2, "waiting"), event(3, "completed"))
    assert ends.of("a") == JobEnd("3-0", None)
    assert after(event(1, "completed"), event(2, "dlq", reason="x")).of("a") == JobEnd("2-0", "x")
    assert after(event(1, "cancelled", reason="x")).of("a") == JobEnd("1-0", "x", is_cancelled=True)
    assert ends.of("b") is None


@pytest.mark.parametrize("name", ["delayed", "retry-scheduled"])
def test_a_job_that_waits_again_has_not_ended(name: str) -> None:
    assert after(event(1, "dlq"), event(2, name)).of("a") is None
    assert after(event(2, name), event(3, "dlq")).of("a") == JobEnd("3-0", "")


@pytest.mark.parametrize("name", ["active", "progress", "failed", "waiting", "stalled", ""])
def test_events_that_are_not_terminal_do_not_change_the_end_of_a_job(name: str) -> None:
    assert after(event(1, name)).of("a") is None
    assert after(event(1, "completed"), event(2, name)).of("a") == JobEnd("1-0", None)


def test_older_events_do_not_change_known_ends() -> None:
    ends = EndedJobs()
    ends.begin("5-0")
    ends.append("5-0", [event(6, "retry-scheduled", "a")])
    ends.prepend([event(5, "dlq", "a"), event(4, "completed", "b"), event(3, "dlq", "b")], 3)
    assert (ends.of("a"), ends.of("b")) == (None, JobEnd("4-0", None))


def test_a_page_that_does_not_follow_the_section_is_ignored() -> None:
    ends = after(event(1, "active"))
    ends.append("0-0", [event(1, "active"), event(2, "dlq")])
    assert (ends.newest, ends.of("a")) == ("1-0", None)


def test_the_section_reports_how_far_back_it_was_read() -> None:
    ends = EndedJobs()
    assert ends.covers(0), "there is no event"
    ends.begin("500-3")
    assert ends.covers(501)
    assert not ends.covers(500)
    ends.prepend([event(500, "x"), event(400, "x")], 2)
    assert (ends.before, ends.covers(401), ends.covers(400)) == ("(400-0", True, False)
    ends.prepend([event(300, "x")], 2)
    assert ends.covers(0)


def test_of_too_many_ends_only_the_awaited_ones_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_JOBS", 3)
    ends = after(*(event(ms, "completed", str(ms)) for ms in range(1, 5)))
    ends.trim({"2"})
    assert [ends.of(str(ms)) is not None for ms in range(1, 5)] == [False, True, False, False]
    assert not ends.covers(0)
    ends.trim(())
    assert ends.of("2") is not None


def test_a_job_added_again_in_the_millisecond_of_its_end_is_later_than_its_end() -> None:
    assert JobEnd("1000-7", None).before == f"999-{2**64 - 1}"
    assert JobEnd("0-1", None).before == f"0-{2**64 - 1}"


def test_the_first_event_to_read_follows_from_the_job_id() -> None:
    made = ulid(1_800_000_000_000)
    assert first_look_back(made) == LookBackLimit(1_800_000_000_000 - 500)
    assert second_look_back(made) == LookBackLimit(1_800_000_000_000 - 5000)
    for chosen in ("order-7", "8" + made[1:], made.lower(), made + "0"):
        assert first_look_back(chosen) == LookBackLimit(0, 1)
        assert second_look_back(chosen) == LookBackLimit(0)


def test_a_job_added_after_reading_began_needs_no_look_back() -> None:
    ends = EndedJobs()
    ends.begin("1000-0")
    assert list(event_ops.look_back(KEYS, ends, LookBackLimit(1001))) == []
    plan = event_ops.look_back(KEYS, ends, LookBackLimit(0, 1))
    [call] = next(plan)
    assert call.parts == ("XREVRANGE", KEYS.events, "1000-0", "-", "COUNT", PAGE)
    with pytest.raises(StopIteration):
        plan.send([[event(ms, "x") for ms in range(1000, 1000 - PAGE, -1)]])


# ── on a server ──────────────────────────────────────────────────────────────


def test_a_job_is_found_among_thousands_that_wait(store: Store, db: Any) -> None:
    with db.pipeline() as adds:
        for place in range(1200):
            adds.xadd(KEYS.stream, {"d": envelope(f"job-{place}")}, id=f"{place + 10}-0")
        adds.execute()
    db.xadd(KEYS.stream, {"n": "no payload"})
    db.xadd(KEYS.stream, {"d": b""})

    def found(id: str, after: str) -> bool:
        return store.follow(event_ops.entered(KEYS, id, after))

    assert found("job-1199", "0-0")
    assert found("job-0", "0-0")
    assert not found("job-0", "10-0")
    assert not found("job-1200", "0-0")
    assert not store.follow(event_ops.entered(Keys("empty"), "a", "0-0"))


def test_jobs_of_any_size_are_scanned_in_parts(store: Store, db: Any) -> None:
    for place in range(12):
        db.xadd(KEYS.stream, {"d": envelope(f"job-{place}", b"\xc4" + bytes(400_000))})
    [call] = next(event_ops.entered(KEYS, "job-11", "0-0"))
    assert isinstance(store.run(call), str), "there is more to look through"
    assert store.follow(event_ops.entered(KEYS, "job-11", "0-0"))


def test_a_job_that_was_added_again_and_ended_during_the_scan_has_a_later_end(
    store: Store, db: Any
) -> None:
    ends = EndedJobs()
    ends.begin("5-0")
    ends.append("5-0", [event(6, "dlq", reason="x")])
    first = ends.of("a")
    assert first == JobEnd("6-0", "x")
    assert store.follow(event_ops.is_over(KEYS, ends, "a", first))
    db.xadd(KEYS.events, {"e": "completed", "id": "a"}, id="9-0")
    assert not store.follow(event_ops.is_over(KEYS, ends, "a", first))
    assert ends.of("a") == JobEnd("9-0", None)
    db.xadd(KEYS.stream, {"d": envelope("a")}, id="9-0")
    assert not store.follow(event_ops.is_over(KEYS, ends, "a", JobEnd("9-0", None)))
