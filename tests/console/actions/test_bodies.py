"""Bodies as people type them become values of jobs and bytes of messages."""

from __future__ import annotations

import msgspec
import pytest

from tambomq.console.actions.bodies import bytes_of, value_of
from tambomq.errors import InvalidFormat


def test_a_job_carries_the_value_and_a_message_the_bytes() -> None:
    assert value_of('{"to": "ada"}', "json") == {"to": "ada"}
    assert value_of("plain", "text") == "plain"
    assert value_of("aGk=", "base64") == b"hi"
    assert bytes_of('{ "to": "ada" }', "json") == b'{ "to": "ada" }'
    assert bytes_of("aGk=", "base64") == b"hi"
    assert msgspec.msgpack.decode(bytes_of('{"to": 1}', "msgpack")) == {"to": 1}


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        ("{", "json"),
        ("{", "msgpack"),
        ("[" * 100_000, "json"),
        ("no base64!", "base64"),
        ("\ud800", "text"),
        ("\ud800", "json"),
        ("x", "yaml"),
    ],
)
def test_a_body_that_is_not_what_it_claims_is_refused(body: str, encoding: str) -> None:
    with pytest.raises(InvalidFormat):
        value_of(body, encoding)
    with pytest.raises(InvalidFormat):
        bytes_of(body, encoding)
