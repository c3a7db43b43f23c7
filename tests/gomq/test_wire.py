"""Encoding and decoding of the messages in Redis lists."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tambomq.gomq import wire
from tambomq.gomq.wire import Element

ID, DATE = "b50vl5e54p1000fo3gh0", "Tue Jul 18 10:15:04 CEST 2017"


@pytest.mark.parametrize(
    ("message", "element"),
    [
        (
            (ID, DATE, b"Hello"),
            (
                b'{"id":"b50vl5e54p1000fo3gh0","timestamp":"Tue Jul 18 10:15:04 CEST 2017",'
                b'"payload":"SGVsbG8="}'
            ),
        ),
        # Empty fields are left out.
        ((ID, DATE, b""), b'{"id":"%b","timestamp":"%b"}' % (ID.encode(), DATE.encode())),
        (("", "", b"\xff\x00?"), b'{"payload":"/wA/"}'),
        (("", "", b""), b"{}"),
    ],
)
def test_an_element_is_encoded_as_the_expected_json(
    message: tuple[str, str, bytes], element: bytes
) -> None:
    assert wire.encode(*message) == element
    assert wire.decode(element) == Element(*message)


@given(st.text(), st.text(), st.binary())
def test_decoding_an_encoded_element_returns_the_same_values(
    id: str, timestamp: str, payload: bytes
) -> None:
    element = wire.encode(id, timestamp, payload)
    assert wire.decode(element) == Element(id, timestamp, payload)


@given(st.text(), st.text(), st.binary())
def test_any_reader_of_json_finds_the_fields(id: str, timestamp: str, payload: bytes) -> None:
    fields = {"id": id, "timestamp": timestamp, "payload": base64.b64encode(payload).decode()}
    element = wire.encode(id, timestamp, payload)
    assert json.loads(element) == {name: text for name, text in fields.items() if text}


@given(st.text(min_size=1), st.text(min_size=1), st.binary(min_size=1))
def test_json_of_another_encoder_is_decoded(id: str, timestamp: str, payload: bytes) -> None:
    fields = {"payload": base64.b64encode(payload).decode(), "timestamp": timestamp, "id": id}
    element = json.dumps(fields | {"more": [1, None]}, indent=1).encode()
    assert wire.decode(element) == Element(id, timestamp, payload)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


others = st.recursive(st.none() | st.text() | st.integers(), st.lists).map(_json)
objects = st.dictionaries(
    st.sampled_from(["id", "timestamp", "payload", "x"]), st.text() | st.integers() | st.none()
)


@given(st.binary() | others)
@example(b"")
@example(b"Hello")
@example(b"null")
@example(b'{"id":7}')
@example(b'{"payload":"not base64!"}')
@example(b'{"id":"a"')
@example(b'{"id":"a"} more')
@example(b'{"id":"\\ud800"}')
@example(b'{"id":"\xff"}')
@example(b"[" * 5000)
def test_invalid_json_decodes_to_an_empty_message(element: bytes) -> None:
    assert wire.decode(element) == Element()


@given(st.binary() | objects.map(_json))
def test_any_bytes_are_decoded_without_an_error(element: bytes) -> None:
    assert isinstance(wire.decode(element), Element)
