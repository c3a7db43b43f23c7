"""Sizes of pages and batches."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.core.paging import (
    MAX_BYTES,
    TARGET_BYTES,
    PageSizer,
    gc_disabled,
    merge_pages,
    split_large,
)


def test_the_first_page_is_small_and_later_ones_are_full() -> None:
    sizer = PageSizer(1000)
    counts = [sizer.count]
    for _ in range(4):
        sizer.note([b"x" * 100] * sizer.count)
        counts.append(sizer.count)
    assert counts == [4, 16, 64, 256, 1000]


def test_after_a_large_row_pages_have_one_row() -> None:
    sizer = PageSizer(1000)
    sizer.note([b"x" * (16 << 20)])
    assert sizer.count == 1
    sizer.note([b"x"])
    assert sizer.count == 4


@given(st.lists(st.lists(st.none() | st.binary(max_size=10), max_size=5)), st.integers(1, 9))
def test_a_page_has_at_least_one_row_and_at_most_the_maximum(
    answers: list[list[bytes | None]], max_count: int
) -> None:
    sizer = PageSizer(max_count)
    for answer in answers:
        sizer.note(answer)
        assert 1 <= sizer.count <= max_count


def test_a_page_is_as_large_as_needed() -> None:
    sizer = PageSizer(1000)
    for _ in range(6):
        sizer.note([b"x" * (TARGET_BYTES // 50)] * sizer.count)
    assert sizer.count == 50


def small(sizer: PageSizer) -> None:
    sizer.note([b"x"] * sizer.count)


def test_the_first_rows_are_handed_on_at_once_and_later_ones_together() -> None:
    sizer = PageSizer(1000)

    def pages() -> Iterator[list[int]]:
        for _ in range(10):
            yield [0] * sizer.count
            small(sizer)

    assert [len(rows) for rows in merge_pages(pages(), sizer)] == [4, 16, 64, 256, 4000, 2000]


def test_pages_of_large_rows_are_handed_on_as_they_come() -> None:
    sizer = PageSizer(1000)
    for _ in range(9):
        sizer.note([b"x" * (TARGET_BYTES // 10)])
    assert [len(rows) for rows in merge_pages([[0] * 10] * 3, sizer)] == [10, 10, 10]


@given(st.lists(st.lists(st.integers(), min_size=1)))
def test_nothing_is_lost_where_pages_are_gathered(pages: list[list[int]]) -> None:
    rows = [row for page in pages for row in page]
    assert [row for some in merge_pages(iter(pages), PageSizer(1000)) for row in some] == rows


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
    bodies = [bytes(each * MAX_BYTES // 4) for each in sizes]
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    pieces = list(split_large(batch))
    assert [len(b) for p in pieces for b in p.column(0).to_pylist()] == list(map(len, bodies))
    assert all(piece.nbytes <= MAX_BYTES or piece.num_rows == 1 for piece in pieces)
    assert [piece.num_rows for piece in pieces] == rows


def test_the_garbage_collector_is_enabled_again_afterwards() -> None:
    def reading() -> Generator[bool, None, None]:
        with gc_disabled():
            yield gc.isenabled()

    assert gc.isenabled()
    begun = reading()
    assert not next(begun)
    begun.close()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), gc_disabled():
        raise ValueError("x")
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
