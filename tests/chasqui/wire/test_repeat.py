"""The codec of repeatable specs: the engine's bytes in both directions, and what else it reads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.chasqui.job import U32, U64, BackoffSpec, RetryOverride
from tambomq.chasqui.repeat import SKIP, MissedFiresPolicy, RepeatPattern, RepeatSpec, spec_key
from tambomq.chasqui.wire.repeat import decode_spec, encode_spec
from tambomq.errors import InvalidPayload, RemoteProtocolError
from tests.chasqui.vectors import Vector, vectors

EVERY = RepeatPattern.every(60_000)
SPEC = RepeatSpec("k", "job", EVERY, b"\x01")
WRAPPED = b"\xc4\x01\x01"
BODY: list[Any] = ["k", "job", {"Every": [60_000]}, WRAPPED, None, None, None, 0]

u64 = st.integers(0, U64)
patterns = st.builds(RepeatPattern.every, st.integers(1, U64)) | st.builds(
    RepeatPattern.cron, st.text(), tz=st.none() | st.text()
)
policies = st.sampled_from([SKIP, MissedFiresPolicy.fire_once()]) | st.builds(
    MissedFiresPolicy.fire_all, st.integers(1, U32)
)
backoffs = st.builds(
    BackoffSpec,
    st.sampled_from(["fixed", "exponential"]),
    u64,
    st.none() | u64,
    st.none() | st.floats(allow_nan=False),
    st.none() | u64,
)
retries = st.none() | st.builds(
    RetryOverride, st.none() | st.integers(0, U32), st.none() | backoffs
)
specs = st.builds(
    RepeatSpec,
    *(st.text(), st.text(), patterns, st.binary()),
    *(st.none() | u64, st.none() | u64, st.none() | u64, policies, retries),
)


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def unpacked(spec: RepeatSpec) -> Any:
    return msgspec.msgpack.decode(encode_spec(spec))


def replaced(place: int, value: Any) -> bytes:
    body = [*BODY, "Skip", None]
    body[place] = value
    return packed(body)


@pytest.mark.parametrize("recorded", vectors("repeat_spec/"))
def test_a_spec_is_the_engine_s_bytes_both_ways(recorded: Vector) -> None:
    given = dict(recorded.inputs["spec"])
    pattern = RepeatPattern(**given.pop("pattern"))
    missed = MissedFiresPolicy(**given.pop("missed_fires", {"kind": "skip"}))
    key = spec_key(given.pop("key"), given["job_name"], pattern)
    spec = RepeatSpec(key=key, pattern=pattern, missed_fires=missed, **given)
    assert encode_spec(spec, "engine") == recorded.blob
    assert decode_spec(recorded.blob) == spec


@pytest.mark.parametrize("recorded", vectors("repeat_spec/"))
def test_a_spec_says_what_becomes_of_missed_fires_as_newer_engines_do(recorded: Vector) -> None:
    body = msgspec.msgpack.decode(recorded.blob)
    spec = decode_spec(recorded.blob)
    assert unpacked(spec) == [*body, "Skip"][:9]
    stubborn = msgspec.structs.replace(spec, retry=RetryOverride(3))
    for dialect in ("auto", "page", "engine"):
        assert len(msgspec.msgpack.decode(encode_spec(stubborn, dialect))) == 10


@given(specs)
def test_any_spec_is_decoded_unchanged(spec: RepeatSpec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


def test_the_policy_skip_has_no_element_in_the_engine_dialect() -> None:
    assert msgspec.msgpack.decode(encode_spec(SPEC, "engine")) == BODY
    assert unpacked(SPEC) == [*BODY, "Skip"]


def test_an_override_is_the_tenth_element_and_the_ninth_is_then_written_out() -> None:
    spec = msgspec.structs.replace(SPEC, retry=RetryOverride(3, BackoffSpec("linear", 5)))
    backoff = ["unknown", 5, None, None, None]
    assert unpacked(spec) == [*BODY, "Skip", [3, backoff]]
    policy = MissedFiresPolicy.fire_all(2)
    spec = msgspec.structs.replace(SPEC, retry=RetryOverride(), missed_fires=policy)
    assert unpacked(spec) == [*BODY, {"FireAll": [2]}, [None, None]]


@pytest.mark.parametrize(
    "body",
    [
        BODY[:7],
        [*BODY[:7], 9],
        [*BODY, "Skip"],
        [*BODY, {"Skip": None}],
        [*BODY, 0],
        [*BODY, "Skip", None],
        {"key": "k", "job_name": "job", "pattern": {1: [60_000]}, "payload": WRAPPED, "new": 1},
        ["k", "job", {"Every": {"interval_ms": 60_000, "new": 1}}, *BODY[3:]],
        [b"k", b"job", {1: [60_000]}, list(WRAPPED), *BODY[4:]],
        ["k", "job", {"Every": [60_000]}, packed([1]), *BODY[4:]],
    ],
)
def test_other_forms_of_a_spec_are_read(body: Any) -> None:
    assert decode_spec(packed(body)) == SPEC
    assert decode_spec(packed(body) + b"trailing") == SPEC


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"Cron": ["* * * * *", None]}, RepeatPattern.cron("* * * * *")),
        ({"Cron": {"expression": "* * * * *"}}, RepeatPattern.cron("* * * * *")),
        ({"Cron": {"tz": "Z", "expression": "@"}}, RepeatPattern.cron("@", tz="Z")),
        ({0: ["@", ""]}, RepeatPattern.cron("@", tz="")),
    ],
)
def test_other_encodings_of_a_pattern_are_read(form: Any, pattern: RepeatPattern) -> None:
    assert decode_spec(replaced(2, form)).pattern == pattern


@pytest.mark.parametrize(
    ("form", "policy"),
    [
        ("FireOnce", MissedFiresPolicy.fire_once()),
        (1, MissedFiresPolicy.fire_once()),
        ({"FireOnce": None}, MissedFiresPolicy.fire_once()),
        ({"FireAll": {"max_catchup": 4}}, MissedFiresPolicy.fire_all(4)),
        ({2: [4]}, MissedFiresPolicy.fire_all(4)),
    ],
)
def test_other_encodings_of_a_policy_are_read(form: Any, policy: MissedFiresPolicy) -> None:
    assert decode_spec(replaced(8, form)).missed_fires == policy


def test_an_override_may_be_a_map() -> None:
    form = {"max_attempts": 2, "backoff": {"kind": 0, "delay_ms": 1}}
    assert decode_spec(replaced(9, form)).retry == RetryOverride(2, BackoffSpec.fixed(1))


@pytest.mark.parametrize(
    "body",
    [
        BODY[:6],
        [*BODY, "Skip", None, None],
        [*BODY, None],
        {"key": "k", "job_name": "job", "pattern": {"Every": [1]}},
        None,
        "spec",
    ],
)
def test_a_spec_of_another_length_is_refused(body: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_spec(packed(body))


@pytest.mark.parametrize(
    ("place", "form"),
    [
        (0, 1),
        (0, b"\xff"),
        (1, None),
        (2, {"Cron": ["* * * * *"]}),
        (2, {"Cron": ["* * * * *", 5]}),
        (2, {"Every": [0]}),
        (2, {"Every": [-1]}),
        (2, {"Every": [1, 2]}),
        (2, {"Every": [1], "Cron": ["@", None]}),
        (2, {"Never": [1]}),
        (2, {2: [1]}),
        (2, {-1: [1]}),
        (2, "Every"),
        (3, b"\x81\xa1k\x01"),
        (3, b""),
        (3, "text"),
        (4, -1),
        (5, 1.5),
        (6, "1"),
        (7, None),
        (8, "Never"),
        (8, 2),
        (8, {"FireOnce": [1]}),
        (8, {"FireAll": None}),
        (8, {"FireAll": [U32 + 1]}),
        (9, [1]),
        (9, "Skip"),
    ],
)
def test_a_spec_with_wrong_values_is_refused(place: int, form: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_spec(replaced(place, form))


@given(specs, st.data())
def test_a_truncated_spec_is_refused(spec: RepeatSpec, data: st.DataObject) -> None:
    body = encode_spec(spec)
    with pytest.raises(RemoteProtocolError):
        decode_spec(body[: data.draw(st.integers(0, len(body) - 1))])


@given(specs, st.data())
def test_a_damaged_spec_is_read_or_refused(spec: RepeatSpec, data: st.DataObject) -> None:
    body = bytearray(encode_spec(spec))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_spec(bytes(body))
    except RemoteProtocolError:
        return
    assert encode_spec(decode_spec(encode_spec(read))) == encode_spec(read)


@pytest.mark.parametrize("nested", [b"\x91", b"\x81\xa1k", b"\x98", b"\x81"])
def test_a_deeply_nested_spec_is_refused(nested: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_spec(nested * 100_000)


@pytest.mark.parametrize(
    "spec",
    [
        RepeatSpec("\ud800", "job", EVERY, b""),
        RepeatSpec("k", "job", RepeatPattern.every(2**64), b""),
        RepeatSpec("k", "job", EVERY, b"", retry=RetryOverride(1, BackoffSpec("fixed", 2**64))),
    ],
)
def test_a_spec_that_cannot_be_encoded_is_an_error_of_the_caller(spec: RepeatSpec) -> None:
    with pytest.raises(InvalidPayload):
        encode_spec(spec)
