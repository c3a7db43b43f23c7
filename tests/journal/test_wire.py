"""Encoding of journal records as fields, and decoding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import LocalProtocolError
from tambomq.journal.wire import JournalRecord, by_name, column, fields_of, number, record_of

texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(0, 2**63 - 1)
records = st.builds(
    JournalRecord,
    at_ms=numbers,
    body=st.none() | st.binary(),
    event=texts.filter(bool),
    id=texts,
    name=texts,
    delay_ms=st.none() | numbers,
    attempt=st.none() | numbers,
    targets=st.none() | numbers,
    reason=texts,
)


@given(records)
def test_a_record_is_decoded_unchanged(record: JournalRecord) -> None:
    assert record_of(fields_of(record)) == record


def test_optional_values_have_fields_of_their_own() -> None:
    dead = JournalRecord(5, event="dead", attempt=2, targets=0, reason="no")
    assert fields_of(dead) == (*(b"e", b"dead", b"ts", b"5", b"a", b"2", b"to", b"0", b"r", b"no"),)


def test_empty_values_are_left_out() -> None:
    assert fields_of(JournalRecord(5)) == (b"e", b"sent", b"ts", b"5")
    assert fields_of(JournalRecord(5, b"", id="a", name="n", delay_ms=0)) == (
        *(b"e", b"sent", b"id", b"a", b"ts", b"5"),
        *(b"n", b"n", b"delay_ms", b"0", b"d", b""),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"at_ms": -1},
        {"at_ms": 2**63},
        {"at_ms": 1, "delay_ms": -1},
        {"at_ms": True},
        {"at_ms": 1, "event": ""},
        {"at_ms": 1, "name": "\ud800"},
        {"at_ms": 1, "body": "text"},
        {"at_ms": 1, "attempt": -1},
        {"at_ms": 1, "targets": "3"},
        {"at_ms": 1, "reason": "\ud800"},
    ],
)
def test_an_invalid_record_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        fields_of(JournalRecord(**wrong))


@given(st.lists(st.binary(max_size=30)))
def test_any_fields_can_be_read(fields: list[bytes]) -> None:
    assert record_of(fields).at_ms >= 0


@pytest.mark.parametrize("value", [None, b"", b"-1", b"1.5", b"\xb2", b"9" * 19, b"1" * 10_000])
def test_a_malformed_number_is_none(value: bytes | None) -> None:
    assert number(value) is None


def test_the_largest_64_bit_number_is_read() -> None:
    assert number(b"9223372036854775807") == 2**63 - 1


def test_a_column_has_a_place_for_each_entry() -> None:
    entries = [by_name([b"d", b"1", b"n", b"x"]), by_name([b"odd"]), by_name([b"d", b"2"])]
    assert column(entries, b"d") == [b"1", None, b"2"]
