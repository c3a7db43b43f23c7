"""Progress of any small value, and log lines of bounded length."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import reports
from tambomq.errors import InvalidPayload, InvalidValue

KEYS = Keys("q")


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_whole_number_is_a_percentage(percent: int) -> None:
    with pytest.raises(InvalidValue):
        reports.encode_progress(percent)


@pytest.mark.parametrize(
    "value", [0, 7, 100, 1.5, True, None, "half", {"rows": 7, "of": [1, 2]}, ["ü"], "x" * 8000]
)
def test_any_small_value_is_decoded_unchanged(value: Any) -> None:
    assert reports.decode_progress(reports.encode_progress(value)) == value


def test_a_percentage_is_stored_in_decimal() -> None:
    assert reports.set_progress(KEYS, "a", reports.encode_progress(50)).args[0] == b"50"


def test_large_and_strange_values_are_refused() -> None:
    with pytest.raises(InvalidValue):
        reports.encode_progress("x" * 8191)
    with pytest.raises(InvalidPayload):
        reports.encode_progress(object())


@pytest.mark.parametrize("stored", [None, b"", b"{", b"\xff"])
def test_an_invalid_stored_progress_is_none(stored: bytes | None) -> None:
    assert reports.decode_progress(stored) is None


@pytest.mark.parametrize("letter", ["x", "ü", "€"])
def test_a_long_line_is_cut_between_characters_with_a_mark(letter: str) -> None:
    add, _ = reports.log_line(KEYS, "a", letter * 5000)
    stored = add.args[-1]
    assert isinstance(stored, bytes)
    assert len(stored) <= reports.MAX_LINE_BYTES
    assert stored.decode().strip(letter) == " […]"


def test_a_line_that_fits_is_kept_and_the_log_is_bounded() -> None:
    add, _ = reports.log_line(KEYS, "a", "x" * reports.MAX_LINE_BYTES)
    assert add.args == ("MAXLEN", 1000, "*", "line", b"x" * reports.MAX_LINE_BYTES)
