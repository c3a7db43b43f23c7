"""The codec of jobs: the engine's bytes in both directions, other forms it reads, invalid bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from tambomq.chasqui.job import U32, U64, BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire import envelope as wire
from tambomq.chasqui.wire import msgpack as packing
from tambomq.errors import InvalidFormat, InvalidPayload, RemoteProtocolError
from tests.chasqui.vectors import Vector, rows, vectors

PLAIN = Envelope("a", b"\x01", 5)
STORED = bytes.fromhex("94a161c401010500")

u64 = st.integers(0, U64)
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
envelopes = st.builds(Envelope, st.text(), st.binary(), u64, st.integers(0, U32), retries)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), U64)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
names = st.text(max_size=63)
page_names = names.filter(lambda name: "\0" not in name[:3])


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def envelope_of(inputs: dict[str, Any]) -> Envelope:
    payload = inputs.get("payload_bytes", inputs.get("user_payload"))
    retry = inputs.get("retry")
    if retry is not None:
        backoff = retry.get("backoff")
        retry = RetryOverride(retry.get("max_attempts"), backoff and BackoffSpec(**backoff))
    return Envelope(
        inputs.get("job_id") or inputs["opts"]["id"],
        packing.encode_payload(inputs["data"]) if payload is None else payload,
        inputs.get("created_at_ms") or inputs["now_ms"],
        retry=retry,
    )


@pytest.mark.parametrize("recorded", vectors("envelope."))
def test_an_envelope_is_the_engine_s_bytes_both_ways(recorded: Vector) -> None:
    envelope = envelope_of(recorded.inputs)
    assert wire.encode_envelope(envelope) == recorded.blob
    read = wire.decode_envelope(recorded.blob)
    assert read == envelope
    if "data" in recorded.inputs:
        assert packing.decode_payload(read.payload) == recorded.inputs["data"]


@pytest.mark.parametrize("recorded", vectors("stream_entry/", "repeat_fire/"))
def test_an_entry_is_an_envelope_and_a_name(recorded: Vector) -> None:
    inputs = recorded.inputs
    envelope, name = wire.read_entry(recorded.fields)
    assert name == inputs.get("name", inputs.get("job_name", ""))
    assert envelope == wire.encode_envelope(envelope_of(inputs))


@pytest.mark.parametrize("recorded", vectors("delayed_member/"))
def test_a_delayed_member_is_the_engine_s_bytes_both_ways(recorded: Vector) -> None:
    name = recorded.inputs["opts"].get("name", "")
    envelope = wire.encode_envelope(envelope_of(recorded.inputs))
    assert wire.encode_member(name, envelope, "engine") == recorded.blob
    assert wire.decode_member(recorded.blob) == (name, envelope)


@pytest.mark.parametrize("recorded", vectors("retry_member/"))
def test_a_retried_job_has_one_attempt_more(recorded: Vector) -> None:
    envelope = wire.decode_envelope(recorded.inputs["source_d"])
    envelope.attempt += 1
    stored = wire.encode_envelope(envelope)
    assert wire.encode_member(recorded.inputs["source_n"], stored, "engine") == recorded.blob


@pytest.mark.parametrize("recorded", vectors("result/"))
def test_a_result_is_what_the_handler_returned(recorded: Vector) -> None:
    if recorded.inputs["return"] is not None:
        assert packing.encode_payload(recorded.inputs["return"]) == recorded.blob
        assert packing.decode_payload(recorded.blob) == recorded.inputs["return"]


@pytest.mark.parametrize("row", rows("decode_cases", "case"))
def test_we_read_what_the_engine_reads_and_refuse_what_it_refuses(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["d_hex"])
    if row["outcome"] == "dlq:decode_failed":
        with pytest.raises(RemoteProtocolError):
            wire.decode_envelope(data)
        return
    read = wire.decode_envelope(data)
    if "decoded" in row:
        assert row["decoded"] == {
            "id": read.id,
            "attempt": read.attempt,
            "created_at_ms": read.created_at_ms,
            "payload_hex": read.payload.hex(),
        }


@pytest.mark.parametrize(
    "stored",
    [
        packed(["a", b"\x01", 5]),
        packed(["a", b"\x01", 5, 0, None]),
        packed([b"a", [1], 5, 0]),
        packed({"id": "a", "payload": b"\x01", "created_at_ms": 5, "new": {"deep": [1]}}),
        packed({"id": b"a", "payload": [1], "created_at_ms": 5, "attempt": 0, "retry": None}),
        b"\xdc\x00\x04" + STORED[1:],
        b"\xdd\x00\x00\x00\x04" + STORED[1:],
        STORED + b"\xc1",
    ],
)
def test_other_forms_of_an_envelope_are_read(stored: bytes) -> None:
    assert wire.encode_envelope(PLAIN) == STORED
    assert wire.decode_envelope(stored) == PLAIN


@pytest.mark.parametrize(
    ("form", "retry"),
    [
        ({}, RetryOverride()),
        ({"max_attempts": 3, "new": 1}, RetryOverride(3)),
        ([None, {"kind": "fixed", "delay_ms": 1}], RetryOverride(None, BackoffSpec.fixed(1))),
        ([None, [0, 1, None, None, 2]], RetryOverride(None, BackoffSpec.fixed(1, 2))),
        ([None, [1, 1, 2, 3, 4]], RetryOverride(None, BackoffSpec("exponential", 1, 2, 3.0, 4))),
        ([None, [7, 1, None, None, None]], RetryOverride(None, BackoffSpec("unknown", 1))),
        ([None, [{"new": None}, 1, None, None, None]], RetryOverride(None, BackoffSpec("new", 1))),
    ],
)
def test_other_forms_of_an_override_are_read(form: Any, retry: RetryOverride) -> None:
    assert wire.decode_envelope(packed(["a", b"\x01", 5, 0, form])).retry == retry


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 255, 256, 65535, 65536])
def test_bytes_after_a_value_of_any_size_are_ignored(size: int) -> None:
    data = b"x" * size
    for value in (data, "x" * size, [1] * size, dict.fromkeys(range(size)), Ext(5, data)):
        assert packing.first_value(packed(value) + b"\xc1") == value


@given(values, st.binary(min_size=1))
def test_bytes_after_any_value_are_ignored(value: Any, more: bytes) -> None:
    assert packing.first_value(packed(value) + more) == value


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"id": "a", "payload": b""},
        ["a", b"", 5, None],
        ["a", b"", 5, True],
        ["a", [256], 5],
        ["a", [True], 5],
        ["a", [-1], 5],
        ["a", "YQ==", 5],
        [b"\xff", b"", 5],
        ["a", b"", 5, 0, 3],
        ["a", b"", 5, 0, [U32 + 1, None]],
        ["a", b"", 5, 0, [None, []]],
        ["a", b"", 5, 0, [None, {"kind": "fixed"}]],
        ["a", b"", 5, 0, [None, [{"fixed": 1}, 1, None, None, None]]],
        ["a", b"", 5, 0, [None, [-1, 1, None, None, None]]],
        ["a", b"", 5, 0, [None, [None, 1, None, None, None]]],
        ["a", b"", 5, 0, [None, ["fixed", 1, None, "2", None]]],
        ["a", b"", 5, 0, [None, ["fixed", 1, None, True, None]]],
    ],
)
def test_an_envelope_with_wrong_values_is_refused(value: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_envelope(packed(value))


def test_an_unknown_kind_is_kept_until_it_is_written() -> None:
    stored = packed(["a", b"\x01", 5, 0, [None, ["linear", 1, None, 2, None]]])
    read = wire.decode_envelope(stored)
    assert read.retry == RetryOverride(None, BackoffSpec("linear", 1, multiplier=2.0))
    again = wire.decode_envelope(wire.encode_envelope(read))
    assert again.retry == RetryOverride(None, BackoffSpec("unknown", 1, multiplier=2.0))


def test_a_whole_multiplier_is_written_as_a_float() -> None:
    retry = RetryOverride(None, BackoffSpec("fixed", 1, multiplier=2))
    assert packed(2.0) in wire.encode_envelope(Envelope("a", b"", 5, retry=retry))


@given(envelopes)
def test_any_envelope_is_decoded_unchanged(envelope: Envelope) -> None:
    stored = wire.encode_envelope(envelope)
    assert wire.decode_envelope(stored) == envelope
    assert wire.decode_envelope(stored + b"\x00") == envelope


@given(envelopes, st.data())
def test_a_truncated_envelope_is_refused(envelope: Envelope, data: st.DataObject) -> None:
    stored = wire.encode_envelope(envelope)
    with pytest.raises(RemoteProtocolError):
        wire.decode_envelope(stored[: data.draw(st.integers(0, len(stored) - 1))])


@given(envelopes, st.data())
def test_a_damaged_envelope_is_refused_or_survives(envelope: Envelope, data: st.DataObject) -> None:
    stored = bytearray(wire.encode_envelope(envelope))
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = wire.encode_envelope(wire.decode_envelope(bytes(stored)))
    except RemoteProtocolError:
        return
    assert wire.encode_envelope(wire.decode_envelope(read)) == read


@given(st.binary())
def test_garbage_is_read_or_refused(data: bytes) -> None:
    for decode in (wire.decode_envelope, packing.decode_payload, wire.decode_member):
        try:
            decode(data)
        except RemoteProtocolError:
            continue


@given(values)
def test_any_value_of_a_peer_is_read_or_refused(value: Any) -> None:
    try:
        wire.decode_envelope(packed(value))
    except RemoteProtocolError:
        return


@pytest.mark.parametrize("nested", [b"\x91", b"\x81\xa1k", b"\x81", b"\x94", b"\x94\xa1a"])
@pytest.mark.parametrize("times", [900, 100_000])
def test_deeply_nested_bytes_are_refused(nested: bytes, times: int) -> None:
    for data in (nested * times, nested * times + b"\x01"):
        with pytest.raises(RemoteProtocolError):
            wire.decode_envelope(data)
    with pytest.raises(RemoteProtocolError):
        packing.decode_payload(nested * times)


@pytest.mark.parametrize("start", ["ddffffffff", "dfffffffff", "94dbffffffff", "94c6ffffffff"])
def test_an_announced_length_without_data_is_refused(start: str) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_envelope(bytes.fromhex(start))


@given(values)
def test_any_payload_is_decoded_unchanged(value: Any) -> None:
    assert packing.decode_payload(packing.encode_payload(value)) == value


def test_a_payload_is_one_value() -> None:
    for data in (b"", b"\x01\x01", b"\xa2\xff\xff", b"\xc1", b"\x81\x81\x01\x02\x03"):
        with pytest.raises(RemoteProtocolError):
            packing.decode_payload(data)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, object(), "\ud800", 1j, {"a": {1: ...}}])
def test_a_value_that_messagepack_cannot_encode_is_an_error_of_the_caller(value: Any) -> None:
    with pytest.raises(InvalidPayload):
        packing.encode_payload(value)


def test_a_value_inside_itself_is_the_caller_s_fault() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidPayload):
        packing.encode_payload(value)


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope("\ud800", b"", 5),
        Envelope("a", b"", 2**64),
        Envelope("a", b"", 5, retry=RetryOverride(1, BackoffSpec("fixed", 1, 2, 10**400))),
    ],
)
def test_an_envelope_that_cannot_be_written_is_the_caller_s_fault(envelope: Envelope) -> None:
    with pytest.raises(InvalidPayload):
        wire.encode_envelope(envelope)


@given(names, envelopes)
def test_a_member_of_the_engine_dialect_is_decoded_unchanged(name: str, envelope: Envelope) -> None:
    stored = wire.encode_envelope(envelope)
    assert wire.decode_member(wire.encode_member(name, stored, "engine")) == (name, stored)


@given(page_names, envelopes)
def test_a_member_of_the_page_dialect_is_decoded_unchanged(name: str, envelope: Envelope) -> None:
    stored = wire.encode_envelope(envelope)
    assert wire.decode_member(wire.encode_member(name, stored, "page")) == (name, stored)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 127, 128, 254, 255])
def test_names_of_every_size_are_decoded_in_both_dialects(size: int) -> None:
    for name in ("n" * size, "\x01" * size):
        for dialect in wire.DIALECTS:
            member = wire.encode_member(name, STORED, dialect)
            assert wire.decode_member(member) == (name, STORED)


def test_the_page_dialect_counts_a_name_in_one_byte() -> None:
    assert wire.encode_member("é", STORED, "page") == b"\x02\xc3\xa9" + STORED
    assert wire.encode_member("", STORED, "page") == b"\x00" + STORED


@pytest.mark.parametrize(
    ("member", "read"),
    [
        # Whatever begins like an envelope decides, the engine's first, …
        (b"\0\0\0\0\x90", ("", b"\x90")),
        (b"\x01\0\0\0n\xdf", ("n", b"\xdf")),
        (b"\x03\0\0\0\x90rest", ("\0\0\0", b"\x90rest")),
        (b"\x01n\x80", ("n", b"\x80")),
        # … and then the lengths alone.
        (b"\x01\0\0\0nrest", ("n", b"rest")),
        (b"\x01\0\0\0n", ("n", b"")),
        (b"\x01nrest", ("n", b"rest")),
        (b"\0\0", ("", b"\0")),
        (b"\0\0\0\0", ("", b"\0\0\0")),
        (b"\x01\x01\0\0" + b"n" * 257 + b"\x94", ("\x01", b"\0\0" + b"n" * 257 + b"\x94")),
    ],
)
def test_the_bytes_after_a_name_decide_the_dialect(member: bytes, read: tuple[str, bytes]) -> None:
    assert wire.decode_member(member) == read


@pytest.mark.parametrize(
    "member", [b"", b"\0", b"\x01", b"\x01n", b"\xff" * 20, b"\x01\xff\x94", b"\x01\0\0\0\xff\x94"]
)
def test_a_member_without_a_name_is_refused(member: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_member(member)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("n" * 257, "engine"),
        ("n" * 256, "page"),
        ("\0", "page"),
        ("\ud800", "page"),
        ("\ud800", "engine"),
        ("n", "latin"),
    ],
)
def test_a_name_must_fit_its_dialect(name: str, dialect: str) -> None:
    with pytest.raises(InvalidFormat):
        wire.encode_member(name, STORED, dialect)


def test_only_auto_page_and_engine_are_dialects() -> None:
    assert [wire.check_dialect(dialect) for dialect in wire.DIALECTS] == ["auto", "page", "engine"]
    with pytest.raises(InvalidFormat):
        wire.check_dialect("Page")


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ([], (None, "")),
        ([b"d", b""], (b"", "")),
        ([b"n", b"job", b"d", b"1"], (b"1", "job")),
        ([b"x", b"d", b"d", b"1", b"n", b"job"], (b"1", "job")),
        ([b"d", b"1", b"d", b"2", b"n", b"a", b"n", b"b"], (b"1", "a")),
        ([b"d", b"1", b"n", b""], (b"1", "")),
        ([b"d", b"1", b"n", b"\xff"], (b"1", "")),
        ([b"n", b"\xff", b"d", b"1"], (b"1", "")),
        ([b"D", b"1", b"N", b"job"], (None, "")),
        ([b"D", b"1"], (None, "")),
        ([b"d"], (None, "")),
    ],
)
def test_a_job_is_read_from_any_fields(fields: list[bytes], read: tuple[bytes | None, str]) -> None:
    assert wire.read_entry(fields) == read
