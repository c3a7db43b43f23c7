"""Columns are checked before anything is written, and rows are cut the same way each time."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tambomq.errors import SettingsError
from tambomq.spark.formats.chasqui.sink import as_packed
from tambomq.spark.sink import rows as sink_rows
from tambomq.spark.sink.rows import MAX_BYTES, MAX_ROWS, Field, Layout, layout
from tests.spark.sinking import batches, sink, table

FIELDS = (Field("body", "STRING or BINARY", sink_rows.as_bytes), Field("queue", "STRING"))


def laid_out(rows: pa.Table) -> Layout:
    return layout("x", FIELDS, ("body",), from_arrow_schema(rows.schema))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 2500), max_size=6), at_once=st.integers(1, 3000))
def test_chunks_do_not_depend_on_how_rows_are_handed_over(sizes: list[int], at_once: int) -> None:
    rows = table(body=[f"{n}" for n in range(sum(sizes))] or ([], pa.string()))
    places, start, handed = laid_out(rows), 0, list[pa.RecordBatch]()
    for size in sizes:
        handed += batches(rows.slice(start, size), at_once)
        start += size
    once = list(places.chunks(batches(rows, 10_000)))
    assert list(places.chunks(handed)) == once
    assert [len(each) for each in once[:-1]] == [MAX_ROWS] * len(once[:-1])
    assert [each.first for each in once] == [MAX_ROWS * n for n in range(len(once))]
    found = [body for each in once for body in each.get("body")]
    assert found == [b"%d" % n for n in range(sum(sizes))]


@settings(deadline=None)
@given(bodies=st.lists(st.none() | st.binary(max_size=25), max_size=40), at_once=st.integers(1, 50))
def test_a_chunk_ends_where_the_next_row_has_no_place(
    bodies: list[bytes | None], at_once: int
) -> None:
    expected, size = list[list[bytes | None]](), 0
    for body in bodies:
        length = len(body or b"")
        if not expected or len(expected[-1]) == 7 or size + length > 40:
            expected.append([])
            size = 0
        expected[-1].append(body)
        size += length
    rows = table(body=(bodies, pa.binary()))
    places = replace(laid_out(rows), max_rows=7)
    with mock.patch.object(sink_rows, "MAX_BYTES", 40):
        found = [each.get("body") for each in places.chunks(batches(rows, at_once))]
    assert found == expected


def test_large_rows_make_short_chunks_and_the_largest_one_of_their_own() -> None:
    sizes = [10, MAX_BYTES // 2, MAX_BYTES // 2, MAX_BYTES + 1, 10, MAX_BYTES - 10, 1]
    rows = table(body=[b"x" * size for size in sizes], queue=[str(n) for n in range(7)])
    for at_once in (1, 3, 100):
        found = list(laid_out(rows).chunks(batches(rows, at_once)))
        assert [each.get("queue") for each in found] == [
            ["0", "1"], ["2"], ["3"], ["4", "5"], ["6"],
        ]  # fmt: skip


def test_columns_are_found_in_any_order_and_any_case() -> None:
    rows = table(Queue=["q"], BODY=["b"])
    [only] = laid_out(rows).chunks(batches(rows, 1))
    assert only.columns == {"queue": ["q"], "body": [b"b"]}


@pytest.mark.parametrize(
    ("source", "columns", "fault"),
    [
        ("rsmq", {"queue": ["q"]}, "there must be a column body; there are body, queue, delay_s"),
        ("rsmq", {"body": [1]}, "the column body must be STRING or BINARY, not BIGINT"),
        ("rsmq", {"body": [["a"]]}, "the column body must be STRING or BINARY, not ARRAY"),
        ("rsmq", {"body": ["b"], "bdy": ["b"]}, "no column bdy; there are body, queue, delay_s"),
        ("rsmq", {"body": ["b"], "Body": ["b"]}, "the column body is there twice"),
        (
            "rsmq",
            {"body": ["b"], "delay_s": ["1"]},
            "column delay_s must be number, not STRING",
        ),
        ("chasqui", {"name": ["n"]}, "there must be a column payload or data"),
        ("chasqui", {"payload": [1], "data": [1]}, "only one of the columns payload or data"),
        ("chasqui", {"data": [1], "id": [1]}, "the column id must be STRING, not BIGINT"),
        (
            "chasqui",
            {"data": [1], "delay_ms": [1], "run_at": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]},
            "only one of the columns delay_ms or run_at",
        ),
        ("gomq", {"payload": [b"b"], "key": [b"k"]}, "the column key must be STRING, not BINARY"),
        ("chasqui", {"data": [1], "backoff": ["5"]}, "must be whole number or STRUCT, not STRING"),
        ("chasqui", {"data": [1], "run_at": [1]}, "column run_at must be TIMESTAMP, not BIGINT"),
        ("gomq", {"body": ["b"]}, "no column body; there are payload, key"),
        ("tambo", {"event": ["sent"]}, "there must be a column body; there are body, queue, event"),
        (
            "tambo",
            {"body": ["b"], "entry_id": ["1-0"]},
            "no column entry_id; there are body,",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_one_line(
    source: str, columns: dict[str, Any], fault: str
) -> None:
    with pytest.raises(SettingsError, match=fault) as refused:
        sink(source, table(**columns), queue="q")
    assert str(refused.value).startswith(f"format '{source}': these rows cannot be written: ")
    assert "\n" not in str(refused.value)


def test_a_table_without_columns_is_refused() -> None:
    with pytest.raises(SettingsError, match="there must be a column body"):
        layout("x", FIELDS, ("body",), StructType([]))


def test_values_become_message_pack_and_bytes_are_that_already() -> None:
    assert as_packed(pa.array([b"\xc0", None])) == [b"\xc0", None]
    assert as_packed(pa.array(["a", None])) == [b"\xa1a", None]
    assert as_packed(pa.array([{"a": [1, None]}])) == [b"\x81\xa1a\x92\x01\xc0"]
    kind = pa.map_(pa.string(), pa.int32())
    assert as_packed(pa.array([[("a", 1)]], kind)) == [b"\x81\xa1a\x01"]


def test_times_become_milliseconds() -> None:
    moment = dt.datetime(1970, 1, 1, 0, 0, 1, 1999, dt.UTC)
    zoned = pa.array([moment, None], pa.timestamp("us", tz="UTC"))
    assert sink_rows.as_ms(zoned) == [1001, None]
    assert sink_rows.as_ms(pa.array([moment], pa.timestamp("us"))) == [1001]
