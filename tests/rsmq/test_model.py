"""Messages, bodies and the limits of numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidBody, InvalidValue
from tambomq.rsmq import Message
from tambomq.rsmq.model import (
    check_count,
    check_maxsize,
    check_seconds,
    check_whole_seconds,
    to_bytes,
)

NO_NUMBERS: list[Any] = [None, "1", b"1", True, False, [1], 1j]
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def message(**fields: Any) -> Message:
    return Message(**{"id": "x" * 32, "body": b"", "rc": 1, "fr": 0, "visible_at": 0, **fields})


def base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text


def test_the_time_of_sending_is_read_from_the_id_of_the_specification() -> None:
    assert message(id="g73zkl38qzSBNq2NcnVVlCldqwqFXRJd").sent == 1645019600667


# From 1973, when ten digits were enough for the first time, until the eleventh in 2085.
@given(st.integers(36**9, 36**10 - 1))
def test_every_microsecond_can_be_read_back_from_an_id(micros: int) -> None:
    assert message(id=base36(micros) + "A" * 22).sent == micros // 1000


@pytest.mark.parametrize("id", ["", "?", ":" * 32, "a:b" * 11, "é" * 32])
def test_an_id_without_a_time_was_sent_at_zero(id: str) -> None:
    assert message(id=id).sent == 0


def test_text_is_the_body_decoded() -> None:
    assert message(body="grüße 🐑".encode()).text == "grüße 🐑"
    with pytest.raises(UnicodeDecodeError):
        _ = message(body=b"\xff").text


def test_a_receipt_names_the_delivery_and_without_one_the_number_of_receives() -> None:
    assert message(rc=7, token="abc").receipt == "7-abc"
    assert message(rc=7).receipt == "7"


@given(st.binary())
def test_bytes_are_stored_as_they_are(body: bytes) -> None:
    assert to_bytes(body) == to_bytes(bytearray(body)) == to_bytes(memoryview(body)) == body  # type: ignore[arg-type]


@given(st.text())
def test_text_is_stored_as_utf_8(body: str) -> None:
    assert to_bytes(body).decode("utf-8") == body


@pytest.mark.parametrize("body", [None, 1, 1.5, True, ["a"], {"a": 1}, object(), "\ud800"])
def test_a_body_that_is_neither_text_nor_bytes_is_refused(body: Any) -> None:
    with pytest.raises(InvalidBody) as caught:
        to_bytes(body)
    assert caught.value.code == "messageNotString"


@pytest.mark.parametrize("value", [0, 1, 9_999_999, 0.0, 0.001, 9_999_999.0])
def test_seconds_in_range_are_taken(value: float) -> None:
    assert check_seconds("vt", value) == value


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, -1, -0.001, 10_000_000, 9_999_999.5, math.nan, math.inf, -math.inf]
)
def test_seconds_out_of_range_are_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="vt must be") as caught:
        check_seconds("vt", value)
    assert caught.value.code == "invalidValue"
    with pytest.raises(InvalidValue, match="vt must be"):
        check_whole_seconds("vt", value)


def test_a_queue_keeps_whole_seconds_only() -> None:
    assert check_whole_seconds("delay", 30) == 30
    with pytest.raises(InvalidValue, match="whole"):
        check_whole_seconds("delay", 30.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1024, 65536, -1])
def test_a_maxsize_in_range_is_taken(value: int) -> None:
    assert check_maxsize(value) == value


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 1, -2, 1023, 65537, 1024.0, math.nan, math.inf])
def test_a_maxsize_out_of_range_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="maxsize must be"):
        check_maxsize(value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, -1, 1.0, math.inf, 10**7, 10**30])
def test_an_illegal_count_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match="count must be"):
        check_count(value)


def test_a_rank_may_be_zero() -> None:
    assert check_count(0, minimum=0) == 0
