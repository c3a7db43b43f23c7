"""Deadlines and backoff delays."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.clock import Deadline, RetryBudget, backoff_delays, now_ms, now_s, unix_date


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set: its only element."""
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    return at


def test_a_deadline_passes_when_its_time_has_come(now: list[float]) -> None:
    deadline = Deadline(2.0)
    assert deadline.left_s == 2.0
    assert not deadline.passed
    now[0] += 2.0
    assert deadline.passed
    assert deadline.left_s == 0.0


def test_time_left_is_never_negative(now: list[float]) -> None:
    deadline = Deadline(1.0)
    now[0] += 5.0
    assert deadline.left_s == 0.0


@given(st.floats(0.001, 1.0), st.floats(1.0, 60.0))
def test_pauses_double_up_to_the_longest_and_are_drawn_from_its_upper_half(
    first_s: float, longest_s: float
) -> None:
    limit = first_s
    for pause in islice(backoff_delays(first_s, longest_s), 20):
        assert limit / 2 <= pause <= limit
        limit = min(limit * 2, longest_s)


def test_two_clients_do_not_pause_alike() -> None:
    assert list(islice(backoff_delays(), 5)) != list(islice(backoff_delays(), 5))


def test_a_retry_budget_ends_at_its_deadline_and_no_pause_goes_beyond(now: list[float]) -> None:
    budget = RetryBudget(0.1)
    while not budget.is_exhausted:
        pause_s = budget.next_delay_s()
        assert pause_s > 0
        now[0] += pause_s
    assert now[0] == pytest.approx(100.1)


def test_a_retry_budget_of_0_is_exhausted_at_once() -> None:
    assert RetryBudget(0).is_exhausted


def test_the_time_is_whole_milliseconds_since_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(now_ms() - time.time() * 1000) < 10_000
    monkeypatch.setattr(time, "time_ns", lambda: 1_800_000_000_123_999_999)
    assert now_ms() == 1_800_000_000_123


def test_the_time_is_whole_seconds_since_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(now_s() - time.time()) < 10
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.999)
    assert now_s() == 1_800_000_000


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of Berlin, even on a machine without tzdata."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        unix_date.cache_clear()
        yield
    time.tzset()
    unix_date.cache_clear()


@pytest.mark.parametrize(
    ("moment", "date"),
    [
        (1_500_365_704, "Tue Jul 18 10:15:04 CEST 2017"),
        (1_499_069_704, "Mon Jul  3 10:15:04 CEST 2017"),
        (1_483_225_200, "Sun Jan  1 00:00:00 CET 2017"),
    ],
)
def test_a_date_is_written_as_the_command_of_that_name_does(
    berlin: None, moment: int, date: str
) -> None:
    assert unix_date(moment) == date


@given(st.integers(0, 2**33))
def test_every_date_has_six_words(moment: int) -> None:
    date = unix_date(moment)
    assert re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 1-3]\d \d\d:\d\d:\d\d \S+ \d{4}", date)
    assert unix_date(moment) is date
