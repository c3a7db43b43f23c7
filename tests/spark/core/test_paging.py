"""How much is asked for at once, and how much is handed on."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.paging import ENOUGH_BYTES, MOST_BYTES, Pace, bounded, gathered, undisturbed


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


def small(pace: Pace) -> None:
    pace.note([b"x"] * pace.count)


def test_the_first_rows_are_handed_on_at_once_and_later_ones_together() -> None:
    pace = Pace(1000)

    def pages() -> Iterator[list[int]]:
        for _ in range(10):
            yield [0] * pace.count
            small(pace)

    assert [len(rows) for rows in gathered(pages(), pace)] == [4, 16, 64, 256, 4000, 2000]


def test_pages_of_large_rows_are_handed_on_as_they_come() -> None:
    pace = Pace(1000)
    for _ in range(9):
        pace.note([b"x" * (ENOUGH_BYTES // 10)])
    assert [len(rows) for rows in gathered([[0] * 10] * 3, pace)] == [10, 10, 10]


@given(st.lists(st.lists(st.integers(), min_size=1)))
def test_nothing_is_lost_where_pages_are_gathered(pages: list[list[int]]) -> None:
    rows = [row for page in pages for row in page]
    assert [row for some in gathered(iter(pages), Pace(1000)) for row in some] == rows


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ([], [0]),
        ([0, 0, 0], [3]),
        ([1, 1, 1], [3]),
        ([1, 1, 1, 1], [2, 2]),
        ([5], [1]),
        ([5, 0, 0, 5], [1, 1, 1, 1]),
        ([0, 1, 0, 1, 0, 1, 5, 5, 1], [4, 2, 1, 1, 1]),
    ],
)
def test_no_batch_is_larger_than_it_may_be_unless_it_is_one_row(
    sizes: list[int], rows: list[int]
) -> None:
    bodies = [bytes(each * MOST_BYTES // 4) for each in sizes]
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    pieces = list(bounded(batch))
    assert [len(b) for p in pieces for b in p.column(0).to_pylist()] == list(map(len, bodies))
    assert all(piece.nbytes <= MOST_BYTES or piece.num_rows == 1 for piece in pieces)
    assert [piece.num_rows for piece in pieces] == rows


def test_garbage_is_looked_for_again_afterwards() -> None:
    def reading() -> Generator[bool, None, None]:
        with undisturbed():
            yield gc.isenabled()

    assert gc.isenabled()
    begun = reading()
    assert not next(begun)
    begun.close()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), undisturbed():
        raise ValueError("x")
    assert gc.isenabled()
    gc.disable()
    try:
        with undisturbed():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
