"""Filters that are pushed down: more rows may be read than they let through, never fewer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tambomq.spark.core.filters import bounds_of
from tambomq.spark.core.table import ColumnBounds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN = float("nan")

COMPARED: dict[type[Filter], Any] = {
    EqualTo: lambda row, value: row == value,
    EqualNullSafe: lambda row, value: row == value,
    GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value,
    LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value,
    In: lambda row, value: row in value,
}


def lets_through(each: Filter, row: Any) -> bool:
    """What Spark makes of a filter."""
    if isinstance(each, Not):
        inner: Any = each.child
        return row is not None and inner.value is not None and not lets_through(inner, row)
    if isinstance(each, IsNull | IsNotNull):
        return (row is None) == isinstance(each, IsNull)
    value = each.value  # type: ignore[attr-defined]
    if isinstance(each, EqualNullSafe) and (row is None or value is None):
        return row is value
    if row is None or value is None:
        return False
    if isinstance(each, In):
        value = [one for one in value if one is not None]
    return bool(COMPARED[type(each)](row, value))


def may_be_read(bounds: ColumnBounds, column: str, row: Any) -> bool:
    """What a table makes of the bounds. It sees milliseconds where Spark sees times."""
    if row is None:
        return True
    plain = (row - EPOCH) // timedelta(milliseconds=1) if isinstance(row, datetime) else row
    low, high = bounds.lowest.get(column), bounds.highest.get(column)
    return (
        bounds.allows(column, plain)
        and (low is None or plain >= low)
        and (high is None or plain <= high)
    )


def filters_on(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    maybe = st.none() | values
    plain = st.one_of(
        *(st.builds(kind, st.just(("c",)), maybe) for kind in COMPARED if kind is not In),
        st.builds(In, st.just(("c",)), st.lists(maybe, max_size=4).map(tuple)),
        st.builds(IsNull, st.just(("c",))),
        st.builds(IsNotNull, st.just(("c",))),
    )
    negated = st.one_of(
        st.builds(EqualTo, st.just(("c",)), maybe), st.builds(LessThan, st.just(("c",)), maybe)
    ).map(Not)
    return plain | negated


# Rows of ours have whole milliseconds; what Spark compares them with has microseconds.
TIMES = st.integers(-(10**6), 2 * 10**12).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
FINE = st.tuples(TIMES, st.integers(0, 999)).map(lambda t: t[0] + timedelta(microseconds=t[1]))


def check(filters: list[Filter], rows: list[Any]) -> None:
    bounds = bounds_of(filters)
    for row in rows:
        if all(lets_through(each, row) for each in filters):
            assert may_be_read(bounds, "c", row)


@given(st.lists(filters_on(st.integers(-5, 5)), max_size=4))
def test_no_number_is_missed(filters: list[Filter]) -> None:
    check(filters, [None, *range(-6, 7)])


@given(st.lists(filters_on(st.text("ab", max_size=2)), max_size=4))
def test_no_text_is_missed(filters: list[Filter]) -> None:
    check(filters, [None, "", "a", "b", "aa", "ab", "ba", "bb", "c"])


@given(st.data())
def test_no_time_is_missed(data: st.DataObject) -> None:
    rows = data.draw(st.lists(TIMES, min_size=1, max_size=5))
    near = st.sampled_from(rows).flatmap(
        lambda row: st.sampled_from(
            [row, row + timedelta(microseconds=1), row - timedelta(microseconds=1)]
        )
    )
    check(data.draw(st.lists(filters_on(near | FINE), max_size=3)), rows)


@given(TIMES)
def test_a_time_is_found_as_an_offset(at: datetime) -> None:
    ms = (at - EPOCH) // timedelta(milliseconds=1)
    bounds = bounds_of([EqualTo(("c",), at)])
    assert (bounds.lowest["c"], bounds.highest["c"]) == (ms, ms)
    assert bounds.allows("c", ms)


def test_a_time_without_zone_is_one_of_utc() -> None:
    bounds = bounds_of([GreaterThan(("c",), datetime(1970, 1, 1, 0, 0, 1))])  # noqa: DTZ001  (what is tested)
    assert bounds.lowest == {"c": 1000}


@pytest.mark.parametrize("kind", [EqualTo, LessThan, GreaterThan, EqualNullSafe])
def test_a_filter_on_nan_implies_no_bounds(kind: Any) -> None:
    assert bounds_of([kind(("c",), NAN)]) == ColumnBounds()
    assert bounds_of([In(("c",), (NAN, 1.0))]) == ColumnBounds()


def test_several_filters_narrow_each_other() -> None:
    bounds = bounds_of(
        [
            In(("queue",), ("a", "b", "c")),
            In(("queue",), ("b", "c", "d")),
            GreaterThanOrEqual(("n",), 3),
            GreaterThan(("n",), 1),
            LessThan(("n",), 9),
        ]
    )
    assert bounds.only["queue"] == {"b", "c"}
    assert (bounds.lowest["n"], bounds.highest["n"]) == (3, 9)


def test_a_field_of_a_struct_is_another_column() -> None:
    bounds = bounds_of([EqualTo(("value", "queue"), "x")])
    assert bounds.allows("queue", "a")


def test_filters_without_bounds_are_left_to_spark() -> None:
    filters = [Not(EqualTo(("c",), 1)), StringStartsWith(("c",), "x"), IsNotNull(("c",))]
    assert bounds_of(filters) == ColumnBounds()
