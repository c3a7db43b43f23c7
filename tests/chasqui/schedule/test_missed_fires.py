from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.chasqui.repeat import SKIP, MissedFiresPolicy, RepeatPattern, RepeatSpec
from tambomq.chasqui.schedule.missed_fires import MAX_FIRES, FirePlan, plan_fires
from tambomq.errors import InvalidFormat
from tests.chasqui.vectors import Vector, vectors

NOW = 1_800_000_000_000
MINUTELY = RepeatPattern.cron("* * * * *")
ONCE = MissedFiresPolicy.fire_once()

policies = st.sampled_from([SKIP, ONCE]) | st.integers(1, 50).map(MissedFiresPolicy.fire_all)
patterns = st.integers(1, 10**12).map(RepeatPattern.every) | st.builds(
    RepeatPattern.cron,
    st.sampled_from(["* * * * * *", "*/5 * * * *", "0 3 * * *", "0 0 29 2 *", "0 0 0 1 1 * 2027"]),
    tz=st.sampled_from([None, "Europe/London"]),
)
times = st.integers(NOW - 10**10, NOW + 10**10)


def spec_of(pattern: RepeatPattern, missed: MissedFiresPolicy = SKIP, **more: Any) -> RepeatSpec:
    return RepeatSpec("key", "job", pattern, b"", missed_fires=missed, **more)


def every(interval_ms: int, missed: MissedFiresPolicy = SKIP, **more: Any) -> RepeatSpec:
    return spec_of(RepeatPattern.every(interval_ms), missed, **more)


@pytest.mark.parametrize("vector", vectors("missed_fires/"))
def test_missed_fires_are_treated_as_the_engine_does(vector: Vector) -> None:
    inputs, wrote = vector.inputs, vector.recorded
    spec = every(inputs["interval_ms"], MissedFiresPolicy(**inputs["policy"]))
    plan = plan_fires(spec, inputs["old_score"], inputs["now_ms"], 1000)
    assert (len(plan.fires), plan.next_ms) == (wrote["entries_written"], wrote["new_score"])


def test_fires_on_time_when_the_next_is_not_due_yet() -> None:
    assert plan_fires(every(10_000), NOW - 9_999, NOW, 1000) == FirePlan((NOW - 9_999,), NOW + 1)
    assert plan_fires(every(10_000), NOW - 10_000, NOW, 1000) == FirePlan((NOW - 10_000,), NOW)


def test_skip_makes_no_fire_for_what_was_missed() -> None:
    assert plan_fires(every(10_000), NOW - 65_000, NOW, 1000) == FirePlan((), NOW + 5000)


@pytest.mark.parametrize("policy", [SKIP, ONCE])
def test_an_interval_shorter_than_a_tick_fires_once_in_each(policy: MissedFiresPolicy) -> None:
    spec = every(300, policy)
    assert plan_fires(spec, NOW - 1000, NOW, 1000) == FirePlan((NOW - 1000,), NOW + 200)


def test_an_interval_shorter_than_a_tick_is_skipped_after_more_than_one() -> None:
    assert plan_fires(every(300), NOW - 1001, NOW, 1000) == FirePlan((), NOW + 199)


def test_fire_all_makes_every_fire_of_a_tick() -> None:
    spec = every(300, MissedFiresPolicy.fire_all(10))
    fires = tuple(NOW - 1000 + 300 * n for n in range(4))
    assert plan_fires(spec, NOW - 1000, NOW, 1000) == FirePlan(fires, NOW + 200)


def test_fire_all_makes_up_for_the_oldest_first() -> None:
    spec = spec_of(MINUTELY, MissedFiresPolicy.fire_all(2))
    plan = plan_fires(spec, NOW - 300_000, NOW, 1000)
    assert plan == FirePlan((NOW - 300_000, NOW - 240_000), NOW + 60_000)


def test_fire_all_has_a_maximum_of_fires_per_tick() -> None:
    plan = plan_fires(every(1, MissedFiresPolicy.fire_all(10**6)), NOW - 10**6, NOW, 1000)
    assert len(plan.fires) == MAX_FIRES
    assert plan.next_ms == NOW + 1


def test_a_billion_missed_intervals_are_planned_without_a_loop() -> None:
    assert plan_fires(every(1), NOW - 10**9, NOW, 1000) == FirePlan((), NOW + 1)
    assert plan_fires(every(7, ONCE), 0, NOW, 1000) == FirePlan((0,), NOW + 7 - NOW % 7)


def test_a_missed_cron_fire_is_followed_by_the_first_in_the_future() -> None:
    year = 365 * 24 * 3_600_000
    assert plan_fires(spec_of(MINUTELY, ONCE), NOW - year, NOW, 1) == FirePlan(
        (NOW - year,), NOW + 60_000
    )


def test_the_last_fire_is_made_even_if_it_is_late() -> None:
    spec = spec_of(RepeatPattern.cron("0 0 0 1 1 * 2027"))
    fire_at = 1_798_761_600_000
    assert plan_fires(spec, fire_at, NOW, 1000) == FirePlan((fire_at,), None)


def test_nothing_fires_after_the_end() -> None:
    fire_all = MissedFiresPolicy.fire_all(9)
    spec = every(10_000, fire_all, end_before_ms=NOW - 45_000)
    assert plan_fires(spec, NOW - 65_000, NOW, 1000).fires == (
        NOW - 65_000,
        NOW - 55_000,
        NOW - 45_000,
    )
    assert plan_fires(every(10_000, end_before_ms=NOW - 2), NOW - 1, NOW, 1000).fires == ()
    assert plan_fires(every(10_000, end_before_ms=NOW - 1), NOW - 1, NOW, 1000).fires == (NOW - 1,)


def test_the_next_fire_waits_for_the_start() -> None:
    spec = every(10_000, start_after_ms=NOW + 3)
    assert plan_fires(spec, NOW - 65_000, NOW, 1000).next_ms == NOW + 10_003
    spec = every(10_000, start_after_ms=NOW - 30_001)
    assert plan_fires(spec, NOW - 65_000, NOW, 1000) == FirePlan((), NOW + 9_999)


def test_fires_that_are_made_up_for_begin_after_the_start() -> None:
    spec = every(10_000, MissedFiresPolicy.fire_all(9), start_after_ms=NOW - 30_001)
    fires = (NOW - 65_000, NOW - 20_001, NOW - 10_001, NOW - 1)
    assert plan_fires(spec, NOW - 65_000, NOW, 1000) == FirePlan(fires, NOW + 9_999)


def test_a_spec_that_is_not_due_keeps_its_next_fire() -> None:
    assert plan_fires(every(10_000), NOW + 1, NOW, 1000) == FirePlan((), NOW + 1)


def test_an_unreadable_spec_is_refused() -> None:
    with pytest.raises(InvalidFormat):
        plan_fires(spec_of(RepeatPattern.cron("every tuesday")), NOW, NOW, 1000)
    with pytest.raises(InvalidFormat):
        plan_fires(spec_of(RepeatPattern("lunar")), NOW, NOW, 1000)


@given(patterns, policies, times, st.none() | times, st.none() | times, st.integers(0, 5000))
def test_the_next_is_never_in_the_past_and_fires_are_due_and_in_order(
    pattern: RepeatPattern,
    missed: MissedFiresPolicy,
    fire_at: int,
    start: int | None,
    end: int | None,
    tick_ms: int,
) -> None:
    spec = spec_of(pattern, missed, start_after_ms=start, end_before_ms=end)
    plan = plan_fires(spec, fire_at, NOW, tick_ms)
    assert plan.next_ms is None or plan.next_ms >= NOW
    assert list(plan.fires) == sorted(set(plan.fires))
    assert all(fire_at <= fire <= NOW and (end is None or fire <= end) for fire in plan.fires)
    assert len(plan.fires) <= (missed.max_catchup or 1)
    assert plan.next_ms not in plan.fires
