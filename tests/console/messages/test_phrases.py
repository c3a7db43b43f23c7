"""Numbers and times as the console says them."""

from __future__ import annotations

import pytest

from tambomq.console.messages import phrases


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.011, "11 ms"),
        (1.24, "1.2 s"),
        (2, "2 s"),
        (59, "59 s"),
        (60, "1 m"),
        (134, "2 m 14 s"),
        (3661, "1 h 01 m"),
        (259_205, "3 d"),
        (-5, "5 s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert phrases.duration(seconds) == text


def test_times_are_relative_to_now() -> None:
    assert phrases.ago(10_000, 144_000) == "2 m 14 s ago"
    assert phrases.ago(144_000, 10_000) == "in 2 m 14 s"


def test_timestamps_are_utc_and_those_beyond_any_date_are_numbers() -> None:
    assert phrases.moment(1_896_080_400_104) == "2030-01-31T09:00:00.104Z"
    assert phrases.moment(2**60) == f"{2**60} ms"


def test_counts_are_spelled_for_one_and_many() -> None:
    assert phrases.count(1, "job") == "1 job"
    assert phrases.count(4212, "job") == "4,212 jobs"
    assert phrases.count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (6, "6th"), (11, "11th"), (22, "22nd")]
)
def test_ordinals_have_their_english_endings(number: int, text: str) -> None:
    assert phrases.ordinal(number) == text


def test_sizes_and_rates_have_units_that_fit() -> None:
    assert [phrases.size(n) for n in (1, 412, 1536, 10 << 20)] == [
        *("1 byte", "412 bytes", "1.5 KiB", "10 MiB")
    ]
    assert [phrases.rate(r) for r in (72.3, 0.5, 0.001)] == [
        *("72 per second", "30 per minute", "3.6 per hour")
    ]
