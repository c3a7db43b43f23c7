"""How much is asked for at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.paging import ENOUGH_BYTES, Pace


def test_it_begins_with_few_and_soon_asks_for_all() -> None:
    pace = Pace(1000)
    counts = [pace.count]
    for _ in range(4):
        pace.note([b"x" * 100] * pace.count)
        counts.append(pace.count)
    assert counts == [4, 16, 64, 256, 1000]


def test_large_ones_come_one_by_one() -> None:
    pace = Pace(1000)
    pace.note([b"x" * (16 << 20)])
    assert pace.count == 1
    pace.note([b"x"])
    assert pace.count == 4


@given(st.lists(st.lists(st.none() | st.binary(max_size=10), max_size=5)), st.integers(1, 9))
def test_at_least_one_is_asked_for_and_never_more_than_the_most(
    answers: list[list[bytes | None]], most: int
) -> None:
    pace = Pace(most)
    for answer in answers:
        pace.note(answer)
        assert 1 <= pace.count <= most


def test_as_much_is_asked_for_as_is_enough() -> None:
    pace = Pace(1000)
    for _ in range(6):
        pace.note([b"x" * (ENOUGH_BYTES // 50)] * pace.count)
    assert pace.count == 50
