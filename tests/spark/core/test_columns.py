"""Columns: their DDL for Spark, and the Arrow values of arbitrary data in Redis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.spark.core import schemas
from tambomq.spark.core.columns import (
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    TIME,
    Column,
    Columns,
    constant,
)

TABLES = [each for each in vars(schemas).values() if isinstance(each, Columns)]


def one(kind: Any, values: Any) -> list[Any]:
    found: list[Any] = Columns(Column("c", kind, "")).batch(c=values).column("c").to_pylist()
    return found


def test_the_ddl_names_type_and_purpose_of_each_column() -> None:
    columns = Columns(Column("a", TEXT, "a's"), Column("b", TIME, "b"), Column("c", "MAP<…>", "c"))
    assert columns.ddl == (
        "`a` STRING COMMENT 'a''s', `b` TIMESTAMP COMMENT 'b', `c` MAP<…> COMMENT 'c'"
    )


def test_a_batch_has_the_schema_that_was_announced() -> None:
    kinds = [TEXT, BYTES, INT, LONG, DOUBLE, BOOL, TIME]
    columns = Columns(*(Column(f"c{place}", kind, "") for place, kind in enumerate(kinds)))
    batch = columns.batch(**{each.name: [None] for each in columns})
    assert batch.schema == columns.arrow
    assert batch.num_rows == 1


@pytest.mark.parametrize("columns", TABLES)
def test_every_column_of_every_table_has_a_description(columns: Columns) -> None:
    assert all(column.about for column in columns)
    assert len({column.name for column in columns}) == len(list(columns))
    assert all(column.name in columns.ddl for column in columns)


@given(st.lists(st.none() | st.text() | st.binary()))
def test_any_text_and_any_bytes_become_text(values: list[Any]) -> None:
    found = one(TEXT, values)
    assert [each is None for each in found] == [each is None for each in values]
    for value, text in zip(values, found, strict=True):
        if isinstance(value, bytes):
            assert text == value.decode(errors="replace")
        elif value is not None:
            assert text == value.encode(errors="replace").decode()


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert one(TEXT, ["\ud800", "é", b"\xff"]) == ["?", "é", "\ufffd"]


@given(st.lists(st.none() | st.integers()))
def test_a_time_that_no_clock_shows_is_null(values: list[int | None]) -> None:
    first = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1000
    last = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1000 + 999
    for value, found in zip(values, one(TIME, values), strict=True):
        if value is None or not first <= value <= last:
            assert found is None
        else:
            assert found.timestamp() == pytest.approx(value / 1000)


@pytest.mark.parametrize(("kind", "bits"), [(INT, 32), (LONG, 64)])
def test_a_number_out_of_range_is_null(kind: pa.DataType, bits: int) -> None:
    highest, lowest = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
    values = [highest, highest + 1, lowest, lowest - 1, None, 10**40]
    assert one(kind, values) == [highest, None, lowest, None, None, None]


def test_an_arrow_array_is_taken_as_it_is() -> None:
    assert one(LONG, pa.array([1, 2], pa.int32())) == [1, 2]


def test_the_column_of_the_queue_is_known() -> None:
    assert schemas.RSMQ_MESSAGES.queue == "queue"
    assert schemas.GOMQ_MAIN.queue == "key"
    assert Columns(Column("a", TEXT, "a"), Column("queue", TEXT, "q")).queue == "queue"


def test_a_constant_column_says_the_same_in_each_row() -> None:
    assert one(TEXT, constant("q", 3)) == ["q"] * 3
    assert one(LONG, constant(None, 2)) == [None] * 2
