"""Offsets: as text, as places in streams, and what they say about entries that are gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.stream_cuts import LAST, number
from tambomq.spark.tail_offsets import (
    START,
    Mark,
    Stream,
    at_most,
    before,
    lag_ms,
    lost,
    moved,
    read,
    shares,
    starting,
    within,
    written,
)

marks = st.builds(
    Mark,
    id=st.integers(0, LAST),
    added=st.none() | st.integers(0, 2**63 - 1),
    lost=st.integers(0, 2**40),
)
queues = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(queues, marks))
def test_an_offset_comes_back_as_it_was(found: dict[str, Mark]) -> None:
    assert read(written(found)) == found


@given(st.dictionaries(queues, marks, min_size=2))
def test_equal_marks_are_equal_text(found: dict[str, Mark]) -> None:
    turned = dict(reversed(found.items()))
    assert list(written(found).items()) == list(written(turned).items())


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {},
        "",
        "-",
        "1-",
        "x",
        "1-2-3",
        "-1",
        "²",
        f"{2**64}-0",
        {"id": "1-1", "added": -1},
        {"id": "1-1", "added": True},
        {"id": "1-1", "lost": None},
        {"id": "1-1", "more": 1},
        {"added": 1},
    ],
)
def test_what_is_no_offset_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="'q'"):
        read({"q": value})


def test_a_query_begins_where_it_is_told() -> None:
    assert starting("Earliest") == "earliest"
    assert starting("latest") == "latest"
    told = '{"a": "latest", "b": "7-1", "c": {"id": "5", "added": 3}}'
    assert starting(told) == {
        "a": "latest",
        "b": Mark(number("7-1")),
        "c": Mark(number("5-0"), 3),
    }


@pytest.mark.parametrize("told", ["", "first", "[]", '"latest"', '{"q": "soon"}', "{"])
def test_a_beginning_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        starting(told)


def test_lag_is_that_of_the_queue_furthest_behind() -> None:
    latest = {"a": "900-0", "b": "1000-5", "new": "5000-0"}
    assert lag_ms({"a": "850-3", "b": "999-9"}, latest) == 50
    assert lag_ms({"a": "900-0", "b": "1000-5"}, latest) == 0


# ── what is gone ─────────────────────────────────────────────────────────────


class Simulated:
    """A stream that remembers what Redis forgets."""

    def __init__(self) -> None:
        self.ever: list[int] = []
        self.kept: list[int] = []

    def add(self, gap: int) -> None:
        self.ever.append((self.ever[-1] if self.ever else 0) + gap)
        self.kept.append(self.ever[-1])

    def seen(self) -> Stream:
        last = self.ever[-1] if self.ever else 0
        return Stream(self.kept[0] if self.kept else None, last, len(self.kept), len(self.ever))

    def mark(self, place: int) -> Mark:
        """A mark as a reader makes it: at the end, or just before an entry that is there."""
        if place >= len(self.kept):
            return self.seen().end
        return Mark(self.kept[place] - 1)

    def unread_and_gone(self, mark: Mark) -> int:
        return len([id for id in self.ever if id > mark.id and id not in self.kept])


gaps = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@given(gaps, st.integers(0, 12), gaps, st.integers(0, 24))
def test_trimming_is_seen_exactly_when_it_took_what_was_unread(
    first: list[int], place: int, then: list[int], trimmed: int
) -> None:
    stream = Simulated()
    for gap in first:
        stream.add(gap)
    mark = stream.mark(place)
    for gap in then:
        stream.add(gap)
    del stream.kept[:trimmed]
    gone = stream.unread_and_gone(mark)
    if not mark.id:
        assert lost(mark, stream.seen()) == 0
    elif mark.added is None:
        assert lost(mark, stream.seen()) == min(1, gone)
    else:
        assert lost(mark, stream.seen()) == gone


@given(gaps, st.integers(0, 12), gaps, st.sets(st.integers(0, 23)))
def test_deleting_what_was_read_is_no_loss(
    first: list[int], place: int, then: list[int], deleted: set[int]
) -> None:
    stream = Simulated()
    for gap in first:
        stream.add(gap)
    mark = stream.mark(place)
    for gap in then:
        stream.add(gap)
    stream.kept = [id for at, id in enumerate(stream.kept) if at not in deleted]
    assert lost(mark, stream.seen()) <= stream.unread_and_gone(mark)


def test_a_stream_that_was_made_anew_has_lost_only_what_it_lost_since() -> None:
    mark = Mark(number("100-0"), added=50)
    assert lost(mark, Stream(number("200-0"), number("300-0"), 10, 10)) == 0
    assert lost(mark, Stream(number("200-0"), number("300-0"), 10, 13)) == 3


def test_a_stream_that_is_gone_has_lost_nothing_that_anybody_knows() -> None:
    assert lost(Mark(number("100-0"), added=50), Stream()) == 0


# ── where a batch ends ───────────────────────────────────────────────────────


@given(gaps, st.integers(0, 12))
def test_nobody_expects_less_than_there_is(all_gaps: list[int], place: int) -> None:
    stream = Simulated()
    for gap in all_gaps:
        stream.add(gap)
    mark = stream.mark(place)
    waiting = len([id for id in stream.kept if id > mark.id])
    assert at_most(mark, stream.seen()) >= waiting
    assert bool(at_most(mark, stream.seen())) == (mark.id < stream.ever[-1])


@given(st.dictionaries(queues, st.integers(0, 1000)), st.integers(1, 500))
def test_rows_are_dealt_out_in_full_and_to_all(backlog: dict[str, int], most: int) -> None:
    dealt = shares({}, backlog, most)
    assert sum(dealt.values()) == min(most, sum(backlog.values()))
    assert all(0 < rows <= backlog[queue] for queue, rows in dealt.items())
    waiting = sum(1 for count in backlog.values() if count)
    assert len(dealt) == min(waiting, most)


def test_a_small_backlog_leaves_its_share_to_the_others() -> None:
    assert shares({}, {"big": 100, "huge": 1000, "small": 2}, 50) == {
        "small": 2,
        "big": 24,
        "huge": 24,
    }


def test_where_rows_are_fewer_than_queues_those_furthest_behind_come_first() -> None:
    places = {"a": Mark(3), "b": Mark(1), "c": Mark(2)}
    assert shares(places, {"a": 9, "b": 9, "c": 9}, 2) == {"b": 1, "c": 1}


def test_a_batch_ends_before_the_next_entry_and_never_behind_its_goal() -> None:
    goal = Mark(100, 7)
    assert before(50, goal) == Mark(49)
    assert before(100, goal) == Mark(99)
    assert before(101, goal) is goal
    assert before(LAST, goal) is goal


def test_a_mark_moves_forward_only_and_keeps_count_of_what_was_lost() -> None:
    start = Mark(50, 5, lost=2)
    assert moved(start, Mark(60, 9), 3) == Mark(60, 9, lost=5)
    assert moved(start, Mark(40, 4), 0) == start


def test_a_range_is_where_entries_can_be() -> None:
    seen = Stream(10, 20, 5, 5)
    assert within(START.id, seen, 15) == (10, 15)
    assert within(12, seen, 40) == (13, 20)
    assert within(20, seen, 40) is None
    assert within(0, Stream(None, 20, 0, 5), 40) is None
