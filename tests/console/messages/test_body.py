"""Bodies in every form that they have, whatever the bytes are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.console.messages.body import (
    PARSED_BYTES,
    PREVIEW_CHARS,
    SHOWN_BYTES,
    decode_body,
    one_line,
    preview,
)


def test_json_is_indented_and_its_numbers_stay_as_they_are_written() -> None:
    body = decode_body(b'{"a":1.10,"b":[12345678901234567890]}')
    assert body.best == "json"
    assert body.json == '{\n  "a": 1.10,\n  "b": [\n    12345678901234567890\n  ]\n}'
    assert body.text == '{"a":1.10,"b":[12345678901234567890]}'


def test_msgpack_shows_what_json_has_no_form_for_as_text() -> None:
    packed = msgspec.msgpack.encode({"id": b"\xff\x00", 7: [None, True]})
    body = decode_body(packed, prefer="msgpack")
    assert body.best == "msgpack"
    assert body.msgpack is not None
    assert msgspec.json.decode(body.msgpack) == {"id": "base64: /wA=", "7": [None, True]}


def test_text_that_is_msgpack_by_accident_is_text() -> None:
    body = decode_body(b"a")
    assert (body.best, body.text, body.msgpack) == ("text", "a", "97")


def test_binary_is_hex() -> None:
    body = decode_body(bytes(range(256)) * 2)
    assert (body.best, body.text, body.json) == ("hex", None, None)
    assert body.hex.splitlines()[0].startswith("00000000  00 01 02 03")
    assert body.hex.splitlines()[4].endswith("@ABCDEFGHIJKLMNO")


def test_markup_stays_text() -> None:
    assert decode_body(b"<script>alert(1)</script>").text == "<script>alert(1)</script>"


def test_a_large_body_is_neither_parsed_nor_shown_whole() -> None:
    body = decode_body(b"[" + b"1," * (5 << 20) + b"1]")
    assert (body.best, body.cut_off, body.json) == ("text", True, None)
    assert body.size_bytes == 2 + 2 * (5 << 20) + 1
    assert body.text is not None
    assert len(body.text) == SHOWN_BYTES


def test_the_beginning_of_a_body_is_cut_between_characters() -> None:
    data = ("é" * SHOWN_BYTES).encode()[: SHOWN_BYTES - 1]
    body = decode_body(data, size=PARSED_BYTES * 2)
    assert (body.best, body.cut_off) == ("text", True)
    assert body.text == "é" * (SHOWN_BYTES // 2 - 1)


def test_json_that_grows_when_indented_is_bounded() -> None:
    body = decode_body(b"[" + b"1," * 100_000 + b"1]")
    assert body.json is not None
    assert (len(body.json), body.cut_off) == (SHOWN_BYTES, True)


def test_deeply_nested_values_are_not_parsed() -> None:
    assert decode_body(b"[" * 200_000 + b"]" * 200_000).best == "text"
    assert decode_body(b"\x91" * 200_000 + b"\xc0", prefer="msgpack").msgpack is None


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    body = decode_body(data)
    assert body.size_bytes == len(data)
    assert preview(data) == one_line(preview(data))
    assert len(preview(data, prefer="msgpack")) <= PREVIEW_CHARS


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'{"a":\n  1}', '{"a": 1}'),
        (b"\x1b[31mred\x00", "[31mred"),
        ("\u202eabc".encode(), "abc"),
        (b"", ""),
        (b"x" * 500, "x" * (PREVIEW_CHARS - 1) + "…"),
    ],
)
def test_a_preview_is_one_printable_line(data: bytes, shown: str) -> None:
    assert preview(data) == shown


def test_a_body_that_was_not_read_is_known_by_its_size() -> None:
    assert preview(b"", size=10 << 20) == "(10 MiB)"
