"""Cursors come back as they were given, and nothing else is taken for one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.console.messages.cursor import decode_cursor, encode_cursor
from tambomq.errors import InvalidFormat

LIST = "chasqui:payments delayed"


@given(st.lists(st.text(max_size=20) | st.integers(0, 2**53), max_size=5))
def test_a_position_is_decoded_from_its_cursor_unchanged(position: list[str | int]) -> None:
    assert decode_cursor(LIST, encode_cursor(LIST, tuple(position))) == tuple(position)


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="an earlier page of the same list"):
        decode_cursor(LIST, encode_cursor("chasqui:payments dead", ("1-0",)))


@pytest.mark.parametrize("data", [b"{}", b'["x"]', b'["x",[-1]]', b'["x",[null]]', b"\xff"])
def test_other_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidFormat):
        decode_cursor("x", base64.urlsafe_b64encode(data).decode())


@given(st.text(max_size=60))
def test_an_invalid_cursor_raises_invalid_format_only(cursor: str) -> None:
    with pytest.raises(InvalidFormat):
        decode_cursor(LIST, cursor)


def test_a_cursor_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidFormat):
        decode_cursor(LIST, encode_cursor(LIST, tuple("x" * 2000 for _ in range(5))))
