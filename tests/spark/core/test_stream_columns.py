"""The fields of a page by columns: the same as one by one, however entries differ."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tambomq.chasqui.wire.envelope import by_name
from tambomq.spark.core.columns import BYTES
from tambomq.spark.core.stream_columns import Fields, moments, whole_numbers

NAMES = [b"a", b"b", b"c"]

entries = st.lists(st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=2)), max_size=4))


@settings(deadline=None)
@given(entries)
def test_columns_are_what_the_entries_say_one_by_one(
    records: list[list[tuple[bytes, bytes]]],
) -> None:
    page = [[word for pair in entry for word in pair] for entry in records]
    fields = Fields(page)
    for name in NAMES:
        expected = [by_name(entry).get(name) for entry in page]
        assert list(fields.values(name)) == expected
        assert fields.column(name).to_pylist() == expected
        assert (fields.array(name) is None) == all(name not in dict(entry) for entry in records)
    assert fields.names == {name for entry in records for name, _ in entry}
    assert fields.repeat == any(len(dict(entry)) < len(entry) for entry in records)
    assert fields.count == len(page)


def test_entries_of_one_length_with_other_field_names_are_distinguished() -> None:
    fields = Fields([[b"a", b"1"], [b"b", b"2"], [b"a", b"3", b"b", b"4"], [b"a", b"5"]])
    assert fields.column(b"a").to_pylist() == [b"1", None, b"3", b"5"]
    assert fields.column(b"b").to_pylist() == [None, b"2", b"4", None]


@pytest.mark.parametrize(
    "text", [b"0x10", b"-1", b"+1", b" 1", b"", b"1.0", b"1e3", b"\xff", b"9" * 19]
)
def test_a_text_that_is_not_a_whole_number_is_none(text: bytes) -> None:
    assert whole_numbers(pa.array([b"1", text], BYTES)) is None


def test_whole_numbers_are_read_and_missing_ones_stay_missing() -> None:
    found = whole_numbers(pa.array([b"1", None, b"007"], BYTES))
    assert found is not None
    assert found.to_pylist() == [1, None, 7]
    nothing = whole_numbers(pa.array([None, None], BYTES))
    assert nothing is not None
    assert nothing.to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("ids", "years"),
    [
        ([b"1790000000000-0", b"1790000000001-12"], [2026, 2026]),
        ([b"1-1", b"1790000000000-0"], [1970, 2026]),
        ([b"1790000000000-0", b"18446744073709551615-1"], [2026, None]),
        ([b"18446744073709551615-1", b"18446744073709551615-2"], [None, None]),
        ([], []),
    ],
)
def test_an_id_begins_with_its_time(ids: list[bytes], years: list[int | None]) -> None:
    found: list[datetime | None] = moments(pa.array(ids, BYTES)).to_pylist()
    assert [each and each.astimezone(UTC).year for each in found] == years
