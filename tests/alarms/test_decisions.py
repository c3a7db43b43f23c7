"""Alarms are raised at one value and cleared at another, whichever way the value must not go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.alarms.decisions import AlarmState, is_beyond
from tambomq.alarms.model import AlarmLimits, AlarmValue

USED = AlarmLimits(raise_at=90, clear_at=80)
FREE = AlarmLimits(raise_at=10, clear_at=20)


def memory(value: float) -> AlarmValue:
    return AlarmValue("memory", "", value, USED)


def length(queue: str, value: float) -> AlarmValue:
    return AlarmValue("queue_length", queue, value, USED)


def raised_over(limits: AlarmLimits, *values: float) -> list[bool]:
    """Whether the alarm is raised after each of *values*."""
    found, is_raised = [], False
    for value in values:
        is_raised = is_beyond(value, limits, was_raised=is_raised)
        found.append(is_raised)
    return found


def test_a_value_that_must_not_grow_is_cleared_below_the_lower_limit() -> None:
    values = (89, 90, 95, 85, 80, 79, 85, 90)
    assert raised_over(USED, *values) == [False, True, True, True, True, False, False, True]


def test_free_space_is_cleared_at_the_higher_limit() -> None:
    values = (11, 10, 9, 15, 19, 20, 15, 9)
    assert raised_over(FREE, *values) == [False, False, True, True, True, False, False, True]


@pytest.mark.parametrize("value", [4, 5, 6])
def test_without_a_gap_there_is_one_limit(value: float) -> None:
    limits = AlarmLimits(5, 5)
    for was_raised in (False, True):
        assert is_beyond(value, limits, was_raised=was_raised) is (value >= limits.raise_at)


@given(st.lists(st.floats(0, 100)), st.sampled_from([USED, FREE]))
def test_between_the_limits_nothing_changes(values: list[float], limits: AlarmLimits) -> None:
    low, high = sorted((limits.raise_at, limits.clear_at))
    is_raised = False
    for value in values:
        before, is_raised = is_raised, is_beyond(value, limits, was_raised=is_raised)
        if low < value < high:
            assert is_raised is before


def test_a_change_is_reported_once_with_its_value() -> None:
    board = AlarmState()
    steps = [board.update("memory", [memory(value)]) for value in (50, 91, 92, 85, 79, 70)]
    shown = [[(each.is_raised, each.alarm.value) for each in step] for step in steps]
    assert shown == [[], [(True, 91)], [], [], [(False, 79)], []]


def test_a_raised_alarm_has_the_last_value() -> None:
    board = AlarmState()
    for value in (91, 95):
        board.update("memory", [memory(value)])
    assert [each.value for each in board.alarms] == [95]


def test_each_queue_has_its_own_alarm() -> None:
    board = AlarmState()
    board.update("queue_length", [length("gomq:a", 95), length("gomq:b", 10), length("gomq:c", 99)])
    assert [each.subject for each in board.alarms] == ["gomq:a", "gomq:c"]
    board.update("queue_length", [length("gomq:a", 70), length("gomq:c", 85)])
    assert [each.subject for each in board.alarms] == ["gomq:c"]


def test_the_alarm_of_a_deleted_queue_is_cleared() -> None:
    board = AlarmState()
    board.update("queue_length", [length("gomq:a", 95)])
    (change,) = board.update("queue_length", [])
    assert (change.is_raised, change.alarm.subject) == (False, "gomq:a")
    assert board.alarms == ()


def test_kinds_that_were_not_measured_keep_their_alarms() -> None:
    board = AlarmState()
    board.update("memory", [memory(95)])
    board.update("disk", [AlarmValue("disk", "/data", 1, FREE)])
    board.update("queue_length", [])
    assert [each.kind for each in board.alarms] == ["disk", "memory"]
