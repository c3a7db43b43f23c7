"""Keys and legal names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidFormat
from tambomq.rsmq.keys import ATTRIBUTES, COUNTERS, Keys, check_id, check_queue

LEGAL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def test_keys_are_spelled_as_the_specification_spells_them() -> None:
    keys = Keys()
    assert keys.queues == "rsmq:QUEUES"
    assert keys.messages("test-queue") == "rsmq:test-queue"
    assert keys.data("test-queue") == "rsmq:test-queue:Q"
    assert keys.of("test-queue") == ("rsmq:test-queue", "rsmq:test-queue:Q")
    assert keys.realtime_channel("test-queue") == "rsmq:rt:test-queue"


def test_every_key_begins_with_the_namespace() -> None:
    keys = Keys("{app}")
    assert keys.queues == "{app}:QUEUES"
    assert keys.of("q") == ("{app}:q", "{app}:q:Q")
    assert keys.realtime_channel("q") == "{app}:rt:q"


@pytest.mark.parametrize("ns", ["", " ", "a b", "a\n", "\0", "a\tb"])
def test_a_namespace_that_cannot_be_typed_is_refused(ns: str) -> None:
    with pytest.raises(InvalidFormat, match="namespace"):
        Keys(ns)


def test_no_field_of_a_queue_has_the_form_of_a_message_id() -> None:
    assert all(len(field) < 32 for field in (*ATTRIBUTES, *COUNTERS))


@pytest.mark.parametrize("name", ["a", "A", "0", "_", "-", ".", "Q", "rt", "queues", "x" * 160])
def test_legal_names_are_returned_as_they_are(name: str) -> None:
    assert check_queue(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "x" * 161, "a:b", "a b", "a\n", "\n", "QUEUES", "é", "日本", "a/b", "a*", "a\0", "\uff11"],
)
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidFormat) as caught:
        check_queue(name)
    assert caught.value.value == name
    assert caught.value.code == ("invalidFormat" if name else "missingParameter")


@pytest.mark.parametrize("name", [None, b"q", 7, True, ["q"], object()])
def test_a_name_that_is_not_a_str_is_refused(name: Any) -> None:
    with pytest.raises(InvalidFormat):
        check_queue(name)
    with pytest.raises(InvalidFormat):
        check_id(name)


@given(st.text(LEGAL + "_-.", min_size=1, max_size=160).filter(lambda name: name != "QUEUES"))
def test_every_name_of_legal_characters_is_legal(name: str) -> None:
    assert check_queue(name) == name


@given(st.text(max_size=200))
def test_a_name_is_legal_exactly_when_the_specification_says_so(name: str) -> None:
    legal = 1 <= len(name) <= 160 and set(name) <= {*LEGAL, *"_-."} and name != "QUEUES"
    if legal:
        assert check_queue(name) == name
    else:
        with pytest.raises(InvalidFormat):
            check_queue(name)


@given(st.text(LEGAL + ":", min_size=32, max_size=32))
def test_every_id_of_32_legal_characters_is_legal(id: str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize(
    "id", ["", "x" * 31, "x" * 33, "x" * 31 + " ", "x" * 31 + "é", "x" * 32 + "\n"]
)
def test_illegal_ids_are_refused(id: str) -> None:
    with pytest.raises(InvalidFormat, match="message id"):
        check_id(id)


@given(st.text(LEGAL + "_-.", min_size=1), st.text(LEGAL + "_-.", min_size=1))
def test_no_two_queues_share_a_key(one: str, other: str) -> None:
    keys = Keys()
    if one != other and "QUEUES" not in {one, other}:
        assert not {*keys.of(one[:160])} & {*keys.of(other[:160])} or one[:160] == other[:160]
        assert keys.queues not in keys.of(one[:160])
