"""Delays between retries: growth, jitter and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidValue
from tambomq.rsmq import Backoff


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1, longest_s=5, jitter=0)
    assert [backoff.wait_s(n) for n in (1, 2, 3, 4, 100_000)] == [1, 2, 4, 5, 5]


@given(st.integers(1, 10**9))
def test_jitter_only_shortens_and_never_by_more_than_its_share(receives: int) -> None:
    whole = Backoff(jitter=0).wait_s(receives)
    assert whole * 0.5 <= Backoff(jitter=0.5).wait_s(receives) <= whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_s": -1},
        {"first_s": 10, "longest_s": 5},
        {"longest_s": 10**8},
        {"factor": 0.5},
        {"jitter": 2},
    ],
)
def test_delays_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        Backoff(**wrong)
