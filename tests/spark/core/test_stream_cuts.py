"""Splitting streams: every entry once, and pieces of about equal size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tambomq.spark.core.stream_cuts import LAST, Around, cut, number, text

NOON = 1_800_000_000_000
HOUR = 3_600_000
PIECES = 4

moments = st.one_of(st.integers(0, 50), st.integers(NOON, NOON + 10**6), st.integers(0, 2**64 - 1))
sequences = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1))
streams = st.sets(st.tuples(moments, sequences), min_size=1, max_size=200)


def around(ids: list[int], ms: int) -> Around:
    """A server's reply about a point of a stream."""
    place = bisect_left(ids, ms << 64)
    before = ids[place - 1] if place else None
    return before, ids[place] if place < len(ids) else None


def pieces_of(
    ids: Iterable[int], pieces: int = PIECES, look: Callable[[list[int], int], Around] = around
) -> tuple[list[tuple[int, int]], int]:
    """The pieces of a stream, and at how many points it was looked at."""
    known, looks = sorted(ids), 0
    plan = cut(known[0], known[-1], len(known), pieces, whole=True)
    try:
        asked = next(plan)
        while True:
            looks += len(asked)
            asked = plan.send([look(known, ms) for ms in asked])
    except StopIteration as end:
        return end.value, looks


def counts(ids: Iterable[int], pieces: int = PIECES) -> list[int]:
    """How many entries each piece has."""
    known = sorted(ids)
    cuts, looks = pieces_of(known, pieces)
    assert looks < len(known) / 4 + 1000
    return [bisect_left(known, last + 1) - bisect_left(known, first) for first, last in cuts]


def at(ms: float, sequence: int = 0) -> int:
    return (int(ms) << 64) + sequence


def lump(ms: float, size: int) -> list[int]:
    """Entries of one millisecond, as a script adds them."""
    return [at(ms, sequence) for sequence in range(size)]


def assert_fair(found: list[int]) -> None:
    """No piece is more than a third larger than it should be."""
    assert len(found) == PIECES
    assert max(found) < sum(found) / PIECES * 1.34, found


@given(streams, st.integers(1, 9))
@example({(0, 1)}, 3)
@example({(0, 0), (2**64 - 1, 2**64 - 1)}, 9)
def test_every_id_is_in_exactly_one_piece(ids: set[tuple[int, int]], pieces: int) -> None:
    known = sorted(at(*id) for id in ids)
    cuts, _ = pieces_of(known, pieces)
    assert 1 <= len(cuts) <= pieces
    assert (cuts[0][0], cuts[-1][1]) == (known[0], known[-1])
    assert all(first <= last for first, last in cuts)
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(cuts))


@given(streams)
def test_entries_trimmed_during_planning_leave_the_ends_of_the_cut(
    ids: set[tuple[int, int]],
) -> None:
    known = sorted(at(*id) for id in ids)
    cuts, _ = pieces_of(known, look=lambda _ids, _ms: (None, None))
    assert (cuts[0][0], cuts[-1][1]) == (known[0], known[-1])


def test_steady_traffic_is_cut_evenly() -> None:
    assert_fair(counts(at(NOON + 7 * place) for place in range(50_000)))


def test_a_burst_in_an_empty_day_is_cut_inside() -> None:
    burst = [at(NOON + place // 40, place % 40) for place in range(50_000)]
    assert_fair(counts([at(NOON - 12 * HOUR), *burst, at(NOON + 12 * HOUR)]))


def test_two_bursts_of_a_week_are_found() -> None:
    first = [at(NOON + place // 10, place % 10) for place in range(30_000)]
    second = [at(NOON + 100 * HOUR + place, 0) for place in range(30_000)]
    assert_fair(counts([at(NOON - 24 * HOUR), *first, *second, at(NOON + 144 * HOUR)]))


def test_a_burst_within_one_millisecond_is_cut_by_sequence_numbers() -> None:
    assert_fair(counts(lump(NOON, 40_000)))
    assert_fair(counts([at(NOON - HOUR), *lump(NOON, 40_000), at(NOON + HOUR)]))


def test_jobs_added_in_bulk_weigh_no_more_than_single_ones() -> None:
    bulks = [id for place in range(100) for id in lump(NOON + 10_000 * place, 250)]
    singles = [at(NOON + 1_000_000 + 10 * place) for place in range(100_000)]
    assert_fair(counts([*bulks, *singles]))
    assert_fair(counts([*singles, *(id + at(3_000_000) for id in bulks)]))


def test_a_thousand_bursts_weigh_as_much_as_they_hold() -> None:
    bursts = [
        at(NOON + place // 50 * 600_000 + place % 50 // 2, place % 2) for place in range(50_000)
    ]
    steady = [at(NOON + 700_000_000 + 1000 * place) for place in range(50_000)]
    assert_fair(counts([*bursts, *steady]))


def test_traffic_that_grows_tenfold_each_hour_is_cut_late() -> None:
    hours = [
        at(NOON + hour * HOUR + HOUR * place // 10 ** (hour + 1))
        for hour in range(5)
        for place in range(10 ** (hour + 1))
    ]
    assert_fair(counts(hours))


def test_few_looks_are_enough_for_a_short_stream() -> None:
    assert pieces_of(at(NOON + 60_000 * place) for place in range(2000))[1] < 100


@pytest.mark.parametrize("id", ["0-0", "0-1", f"{NOON}-7", f"{2**64 - 1}-{2**64 - 1}"])
def test_an_id_and_its_number_are_the_same(id: str) -> None:
    assert text(number(id)) == text(number(id.encode())) == id


def test_an_id_may_leave_its_sequence_out() -> None:
    assert number("5") == number("5-0") < number("5-1") < number("6-0") < LAST
