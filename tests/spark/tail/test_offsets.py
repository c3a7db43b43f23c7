"""Offsets: as text, as places in streams, and what they say about entries that are gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.core.stream_cuts import LAST, number
from tambomq.spark.tail.offsets import (
    START,
    StreamOffset,
    StreamState,
    advance,
    backlog_bound,
    before,
    clip,
    decode,
    encode,
    lag_ms,
    lost,
    share_rows,
    starting,
)

offsets = st.builds(
    StreamOffset,
    id=st.integers(0, LAST),
    added=st.none() | st.integers(0, 2**63 - 1),
    lost=st.integers(0, 2**40),
)
queues = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(queues, offsets))
def test_an_offset_survives_encoding(found: dict[str, StreamOffset]) -> None:
    assert decode(encode(found)) == found


@given(st.dictionaries(queues, offsets, min_size=2))
def test_equal_offsets_are_equal_text(found: dict[str, StreamOffset]) -> None:
    turned = dict(reversed(found.items()))
    assert list(encode(found).items()) == list(encode(turned).items())


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
def test_an_invalid_offset_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="'q'"):
        decode({"q": value})


def test_a_query_starts_at_the_given_offset() -> None:
    assert starting("Earliest") == "earliest"
    assert starting("latest") == "latest"
    given = '{"a": "latest", "b": "7-1", "c": {"id": "5", "added": 3}}'
    assert starting(given) == {
        "a": "latest",
        "b": StreamOffset(number("7-1")),
        "c": StreamOffset(number("5-0"), 3),
    }


@pytest.mark.parametrize("given", ["", "first", "[]", '"latest"', '{"q": "soon"}', "{"])
def test_an_invalid_starting_offset_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        starting(given)


def test_lag_is_that_of_the_queue_furthest_behind() -> None:
    latest = {"a": "900-0", "b": "1000-5", "new": "5000-0"}
    assert lag_ms({"a": "850-3", "b": "999-9"}, latest) == 50
    assert lag_ms({"a": "900-0", "b": "1000-5"}, latest) == 0


# ── lost entries ──────────────────────────────────────────────────────────────


class Simulated:
    """A stream that remembers what Redis forgets."""

    def __init__(self) -> None:
        self.ever: list[int] = []
        self.kept: list[int] = []

    def add(self, gap: int) -> None:
        self.ever.append((self.ever[-1] if self.ever else 0) + gap)
        self.kept.append(self.ever[-1])

    def seen(self) -> StreamState:
        last = self.ever[-1] if self.ever else 0
        return StreamState(
            self.kept[0] if self.kept else None, last, len(self.kept), len(self.ever)
        )

    def offset(self, index: int) -> StreamOffset:
        """An offset as a reader makes it: at the end, or just before an existing entry."""
        if index >= len(self.kept):
            return self.seen().end
        return StreamOffset(self.kept[index] - 1)

    def unread_and_removed(self, offset: StreamOffset) -> int:
        return len([id for id in self.ever if id > offset.id and id not in self.kept])


gaps = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@given(gaps, st.integers(0, 12), gaps, st.integers(0, 24))
def test_trimming_is_seen_exactly_when_it_took_what_was_unread(
    first: list[int], index: int, then: list[int], trimmed: int
) -> None:
    stream = Simulated()
    for gap in first:
        stream.add(gap)
    offset = stream.offset(index)
    for gap in then:
        stream.add(gap)
    del stream.kept[:trimmed]
    removed = stream.unread_and_removed(offset)
    if not offset.id:
        assert lost(offset, stream.seen()) == 0
    elif offset.added is None:
        assert lost(offset, stream.seen()) == min(1, removed)
    else:
        assert lost(offset, stream.seen()) == removed


@given(gaps, st.integers(0, 12), gaps, st.sets(st.integers(0, 23)))
def test_deleting_read_entries_is_not_counted_as_a_loss(
    first: list[int], index: int, then: list[int], deleted: set[int]
) -> None:
    stream = Simulated()
    for gap in first:
        stream.add(gap)
    offset = stream.offset(index)
    for gap in then:
        stream.add(gap)
    stream.kept = [id for at, id in enumerate(stream.kept) if at not in deleted]
    assert lost(offset, stream.seen()) <= stream.unread_and_removed(offset)


def test_a_recreated_stream_reports_only_later_losses() -> None:
    offset = StreamOffset(number("100-0"), added=50)
    assert lost(offset, StreamState(number("200-0"), number("300-0"), 10, 10)) == 0
    assert lost(offset, StreamState(number("200-0"), number("300-0"), 10, 13)) == 3


def test_a_deleted_stream_reports_no_loss() -> None:
    assert lost(StreamOffset(number("100-0"), added=50), StreamState()) == 0


# ── where a batch ends ───────────────────────────────────────────────────────


@given(gaps, st.integers(0, 12))
def test_the_backlog_is_never_underestimated(all_gaps: list[int], index: int) -> None:
    stream = Simulated()
    for gap in all_gaps:
        stream.add(gap)
    offset = stream.offset(index)
    waiting = len([id for id in stream.kept if id > offset.id])
    assert backlog_bound(offset, stream.seen()) >= waiting
    assert bool(backlog_bound(offset, stream.seen())) == (offset.id < stream.ever[-1])


@given(st.dictionaries(queues, st.integers(0, 1000)), st.integers(1, 500))
def test_the_row_limit_is_used_fully_and_shared_by_all_queues(
    backlog: dict[str, int], max_rows: int
) -> None:
    dealt = share_rows({}, backlog, max_rows)
    assert sum(dealt.values()) == min(max_rows, sum(backlog.values()))
    assert all(0 < rows <= backlog[queue] for queue, rows in dealt.items())
    waiting = sum(1 for count in backlog.values() if count)
    assert len(dealt) == min(waiting, max_rows)


def test_a_small_backlog_leaves_its_share_to_the_others() -> None:
    assert share_rows({}, {"big": 100, "huge": 1000, "small": 2}, 50) == {
        "small": 2,
        "big": 24,
        "huge": 24,
    }


def test_where_rows_are_fewer_than_queues_those_furthest_behind_come_first() -> None:
    places = {"a": StreamOffset(3), "b": StreamOffset(1), "c": StreamOffset(2)}
    assert share_rows(places, {"a": 9, "b": 9, "c": 9}, 2) == {"b": 1, "c": 1}


def test_a_batch_ends_before_the_next_entry_and_never_behind_its_goal() -> None:
    goal = StreamOffset(100, 7)
    assert before(50, goal) == StreamOffset(49)
    assert before(100, goal) == StreamOffset(99)
    assert before(101, goal) is goal
    assert before(LAST, goal) is goal


def test_an_offset_moves_forward_only_and_keeps_count_of_what_was_lost() -> None:
    start = StreamOffset(50, 5, lost=2)
    assert advance(start, StreamOffset(60, 9), 3) == StreamOffset(60, 9, lost=5)
    assert advance(start, StreamOffset(40, 4), 0) == start


def test_the_range_to_read_is_clipped_to_existing_entries() -> None:
    seen = StreamState(10, 20, 5, 5)
    assert clip(START.id, seen, 15) == (10, 15)
    assert clip(12, seen, 40) == (13, 20)
    assert clip(20, seen, 40) is None
    assert clip(0, StreamState(None, 20, 0, 5), 40) is None
