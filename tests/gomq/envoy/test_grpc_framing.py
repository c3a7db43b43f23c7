from __future__ import annotations

import gzip
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import BrokerRefused
from tambomq.gomq.envoy import grpc_framing

MAX = 1000


def refused(body: bytes, **options: str) -> str:
    with pytest.raises(BrokerRefused) as caught:
        grpc_framing.unframe(body, max_bytes=MAX, **options)
    return caught.value.status


def zipped(message: bytes) -> bytes:
    data = gzip.compress(message, mtime=0)  # or the names of tests would hold the time
    return b"\1" + len(data).to_bytes(4, "big") + data


def test_frame_is_a_flag_four_bytes_of_length_and_the_message() -> None:
    assert grpc_framing.frame(b"abc") == b"\0\0\0\0\3abc"
    assert grpc_framing.frame(b"") == b"\0\0\0\0\0"


@given(st.binary(max_size=MAX))
def test_unframing_a_frame_returns_the_message(message: bytes) -> None:
    assert grpc_framing.unframe(grpc_framing.frame(message), max_bytes=MAX) == message
    assert grpc_framing.unframe(zipped(message), max_bytes=MAX, encoding="gzip") == message


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_any_split_gives_the_same_messages(messages: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(map(grpc_framing.frame, messages))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=8)))
    buffer, found = bytearray(), list[bytes]()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        buffer += whole[start:end]
        found += grpc_framing.take(buffer, max_bytes=MAX)
    assert [grpc_framing.unframe(each, max_bytes=MAX) for each in found] == messages
    assert not buffer


@given(st.binary(max_size=60), st.sampled_from(["identity", "gzip"]))
def test_garbage_is_a_message_or_refused(body: bytes, encoding: str) -> None:
    with suppress(BrokerRefused):
        message = grpc_framing.unframe(body, max_bytes=20, encoding=encoding)
        assert body[0] or body == grpc_framing.frame(message)


@given(st.binary(max_size=60))
def test_garbage_in_a_stream_is_only_ever_refused(body: bytes) -> None:
    buffer = bytearray(body)
    with suppress(BrokerRefused):
        taken = list(grpc_framing.take(buffer, max_bytes=20))
        assert b"".join(taken) + bytes(buffer) == body


def test_too_long_a_message_is_refused_by_its_announced_length_alone() -> None:
    with pytest.raises(BrokerRefused, match="1001 bytes exceeds 1000") as caught:
        grpc_framing.check(b"\0" + (MAX + 1).to_bytes(4, "big"), max_bytes=MAX)
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    grpc_framing.check(b"\0" + MAX.to_bytes(4, "big"), max_bytes=MAX)


def test_an_incomplete_message_is_not_an_error() -> None:
    whole = grpc_framing.frame(b"abc")
    for size in range(len(whole) + 1):
        grpc_framing.check(whole[:size], max_bytes=MAX)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", "UNIMPLEMENTED"),
        (b"\0\0", "INTERNAL"),
        (b"\0\0\0\0\3ab", "INTERNAL"),
        (b"\2\0\0\0\0", "INTERNAL"),
        (grpc_framing.frame(b"one") + grpc_framing.frame(b"two"), "UNIMPLEMENTED"),
        (zipped(b"with no encoding agreed"), "INTERNAL"),
    ],
)
def test_body_that_is_not_one_message_is_refused(body: bytes, status: str) -> None:
    assert refused(body) == status


def test_a_message_that_decompresses_beyond_the_limit_is_refused() -> None:
    small = zipped(b"0" * (MAX + 1))
    assert len(small) < MAX
    assert refused(small, encoding="gzip") == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("wrong", [b"not gzip", gzip.compress(b"cut", mtime=0)[:-3], b""])
def test_a_message_that_cannot_be_decompressed_is_refused(wrong: bytes) -> None:
    body = b"\1" + len(wrong).to_bytes(4, "big") + wrong
    assert refused(body, encoding="gzip") == "INTERNAL"


def test_uncompressed_message_may_come_where_gzip_was_agreed() -> None:
    assert grpc_framing.unframe(grpc_framing.frame(b"a"), max_bytes=MAX, encoding="gzip") == b"a"


def test_unknown_encodings_are_refused() -> None:
    grpc_framing.check_encoding("gzip")
    grpc_framing.check_encoding("identity")
    with pytest.raises(BrokerRefused, match="identity,deflate,gzip only") as caught:
        grpc_framing.check_encoding("snappy")
    assert caught.value.status == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("10S", 10), ("501m", 0.501), ("7u", 7e-6), ("99999999n", 0.1)],
)
def test_timeout_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert grpc_framing.timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "10", "10s", "-1S", "123456789S", "1.5S", "١S", "1S\n"])
def test_an_invalid_timeout_is_refused(text: str) -> None:
    with pytest.raises(BrokerRefused, match="grpc-timeout") as caught:
        grpc_framing.timeout_s(text)
    assert caught.value.status == "INVALID_ARGUMENT"


def test_text_of_a_status_is_escaped_where_it_is_not_plain() -> None:
    assert grpc_framing.escaped("key 'a/b' is 100% wrong") == b"key 'a/b' is 100%25 wrong"
    assert grpc_framing.escaped("größe\n") == b"gr%C3%B6%C3%9Fe%0A"
    assert grpc_framing.escaped("\ud800") == b"?"


@given(st.text())
def test_escaped_text_is_always_a_good_header(text: str) -> None:
    assert all(0x20 <= byte <= 0x7E for byte in grpc_framing.escaped(text))
