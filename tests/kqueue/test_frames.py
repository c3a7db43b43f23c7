"""Frames: the protocol page's examples both ways, and the scan against a reference decoder."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidBody, InvalidFormat, InvalidValue, MessageTooLong
from tambomq.kqueue import Limits, Message
from tambomq.kqueue.decoder import MessageDecoder
from tambomq.kqueue.frames import (
    LIMITS,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_message,
    encode_subscribe,
    encode_unsubscribe,
    pack_messages,
    scan,
    scan_requests,
)
from tests.kqueue import naive
from tests.kqueue.naive import SMALL, message, subscribe, u32, unsubscribe

HELLO = b"*\x00\x00\x00\x05queue\x00\x00\x00\x0cHello, world"
ROUTES = {
    b"": "no targets",
    b"a": "both",
    b"b": "both",
    b"queue": "one",
    b"*": "other",
    b"\x00\x00\x00\x01": "one",
}

# ── values to bytes ──────────────────────────────────────────────────────────


def test_the_examples_of_the_protocol_page_are_encoded_as_shown() -> None:
    assert encode_message("queue", "Hello, world") == HELLO
    assert encode_subscribe("queue") == b">\x00\x00\x00\x05queue"
    assert encode_unsubscribe("queue") == b"/\x00\x00\x00\x05queue"
    assert encode_subscribe("") == b">\x00\x00\x00\x00"
    assert encode_unsubscribe("") == b"/\x00\x00\x00\x00"


def test_the_examples_of_the_protocol_page_are_parsed_as_shown() -> None:
    assert MessageDecoder().feed(HELLO) == [Message(b"queue", b"Hello, world")]
    requests, rest = scan_requests(
        b">\x00\x00\x00\x05queue/\x00\x00\x00\x05queue>\x00\x00\x00\x00/\x00\x00\x00\x00", 0, LIMITS
    )
    assert requests == [
        (SUBSCRIBE, b"queue"),
        (UNSUBSCRIBE, b"queue"),
        (SUBSCRIBE, b""),
        (UNSUBSCRIBE, b""),
    ]
    assert rest == (30, 5, None)


def test_text_and_bytes_are_the_same_on_the_wire() -> None:
    assert encode_message("schön", "ü") == encode_message("schön".encode(), "ü".encode())
    assert encode_message(bytearray(b"a"), memoryview(b"b")) == message(b"a", b"b")  # type: ignore[arg-type]  # (any bytes will do)


def test_names_and_bodies_have_exactly_their_limits() -> None:
    assert encode_message(b"n" * 6, b"b" * 12, SMALL) == message(b"n" * 6, b"b" * 12)
    for encode in (encode_subscribe, encode_unsubscribe):
        assert encode(b"n" * 6, SMALL)
        with pytest.raises(InvalidValue, match="at most 6 bytes, not 7"):
            encode(b"n" * 7, SMALL)
    with pytest.raises(InvalidValue, match="at most 6 bytes, not 8"):
        encode_message("ü" * 4, b"", SMALL)
    with pytest.raises(MessageTooLong) as caught:
        encode_message(b"a", b"b" * 13, SMALL)
    assert (caught.value.queue, caught.value.size, caught.value.maxsize) == ("a", 13, 12)


@pytest.mark.parametrize("queue", [None, 5, "\ud800", ["a"]])
def test_a_name_that_is_neither_text_nor_bytes_is_refused(queue: object) -> None:
    with pytest.raises(InvalidFormat, match="queue name"):
        encode_message(queue, b"")  # type: ignore[arg-type]  # (the mistake itself)


@pytest.mark.parametrize("body", [None, 5, "\ud800", {"a": 1}])
def test_a_body_that_is_neither_text_nor_bytes_is_refused(body: object) -> None:
    with pytest.raises(InvalidBody):
        encode_message("a", body)  # type: ignore[arg-type]  # (the mistake itself)


@pytest.mark.parametrize("limit", [0, -1, 1 << 32])
def test_limits_beyond_a_32_bit_length_are_refused(limit: int) -> None:
    with pytest.raises(InvalidValue, match="name_bytes"):
        Limits(name_bytes=limit)
    with pytest.raises(InvalidValue, match="message_bytes"):
        Limits(message_bytes=limit)


@given(naive.messages)
def test_packed_messages_are_the_frames_one_after_the_other(
    found: list[tuple[bytes, bytes]],
) -> None:
    packs = list(pack_messages(found))
    assert b"".join(data for data, _ in packs) == naive.stream(found)
    assert sum(count for _, count in packs) == len(found)


def test_messages_are_packed_lazily() -> None:
    taken = 0

    def endless() -> Iterator[tuple[str, bytes]]:
        nonlocal taken
        while True:
            taken += 1
            yield "a", b"x" * 1000

    data, count = next(pack_messages(endless()))
    assert count == taken
    assert len(data) < 300_000


def test_messages_before_a_refused_one_are_packed_first() -> None:
    packs = pack_messages([("a", "1"), ("a", "2"), ("a", b"b" * 13), ("a", "3")], SMALL)
    assert next(packs) == (message(b"a", b"1") + message(b"a", b"2"), 2)
    with pytest.raises(MessageTooLong):
        next(packs)


# ── bytes to values ──────────────────────────────────────────────────────────


def scanned(data: bytes, limits: Limits = SMALL) -> tuple[list[tuple[bytes, str]], int, bool]:
    """Each byte range with its targets, where they end, and whether garbage follows."""
    runs, rest = scan(data, 0, ROUTES, limits)
    for start, end, _, count in runs:
        found, size, _ = naive.decode(data[start:end], limits)
        assert (len(found), size) == (count, end - start)
    for one, following in pairwise(runs):
        assert one[1] == following[0]
        assert one[2] != following[2]
    return [(data[start:end], to) for start, end, to, _ in runs], rest.start, bool(rest.error)


def expected(data: bytes) -> tuple[list[tuple[bytes, str]], int, bool]:
    found, end, is_bad = naive.decode(data, SMALL)
    runs: list[tuple[bytes, str]] = []
    for name, body in found:
        frame, to = message(name, body), ROUTES[name]
        if runs and runs[-1][1] == to:
            runs[-1] = (runs[-1][0] + frame, to)
        else:
            runs.append((frame, to))
    return runs, end, is_bad


@given(naive.messages | naive.repeating, st.binary(max_size=12), st.integers(0, 40))
def test_the_scan_agrees_with_the_reference_decoder(
    found: list[tuple[bytes, bytes]], garbage: bytes, lost: int
) -> None:
    data = naive.stream(found) + garbage
    data = data[: max(0, len(data) - lost)]
    try:
        reference = expected(data)
    except KeyError:  # garbage that is a frame of an unknown name
        return
    assert scanned(data) == reference


@given(naive.repeating, st.integers(0, 4), st.integers(0, 3))
def test_a_length_over_the_limit_ends_the_scan_wherever_it_comes(
    found: list[tuple[bytes, bytes]], at: int, more: int
) -> None:
    before = naive.stream(found[:at])
    for bad in (b"*" + u32(7), b"*" + u32(1) + b"a" + u32(13), message(b"a", b"b" * 13)):
        runs, rest = scan(before + bad + b"x" * more, 0, ROUTES, SMALL)
        assert rest.error is not None
        assert rest.start == len(before)
        assert sum(count for _, _, _, count in runs) == len(found[:at])


def test_frames_of_one_name_are_one_run_however_their_lengths_change() -> None:
    bodies = [b"", b"x", b"x", b"x", b"xx", b"xx", b"", b"", b"", b"xxx"]
    data = b"".join(message(b"a", body) for body in bodies)
    assert scan(data, 0, ROUTES, SMALL)[0] == [(0, len(data), "both", len(bodies))]
    for cut in range(1, len(message(b"a", b"xxx"))):
        end = len(data) - len(message(b"a", b"xxx"))
        runs, rest = scan(data[:-cut], 0, ROUTES, SMALL)
        assert runs == [(0, end, "both", len(bodies) - 1)]
        assert (rest.start, rest.error) == (end, None)


def test_a_scan_starts_at_the_given_position() -> None:
    assert scan(b"produce" + HELLO, 7, ROUTES, LIMITS)[0] == [(7, 7 + len(HELLO), "one", 1)]


@pytest.mark.parametrize(
    ("partial", "needed"),
    [
        (b"", 5),
        (b"*", 5),
        (b"*\x00\x00\x00", 5),
        (b"*\x00\x00\x00\x05", 14),
        (b"*\x00\x00\x00\x05queue\x00\x00\x00", 14),
        (b"*\x00\x00\x00\x05queue\x00\x00\x00\x0c", 26),
        (HELLO[:-1], 26),
    ],
)
def test_a_partial_frame_says_how_many_bytes_it_needs(partial: bytes, needed: int) -> None:
    assert scan(HELLO + partial, 0, ROUTES, LIMITS)[1] == (len(HELLO), needed, None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"x", "no frame begins with b'x'"),
        (b">", "only a consumer subscribes"),
        (b"/\x00\x00\x00\x00", "only a consumer subscribes"),
        (b"*\x00\x00\x00\x07", "a name of 7 bytes exceeds 6"),
        (b"*\xff\xff\xff\xff", "a name of 4294967295 bytes exceeds 6"),
        (b"*\x00\x00\x00\x01a\x00\x00\x00\x0d", "a message of 13 bytes exceeds 12"),
    ],
)
def test_a_bad_frame_is_refused_at_its_first_invalid_byte(data: bytes, why: str) -> None:
    runs, rest = scan(message(b"a", b"1") + data, 0, ROUTES, SMALL)
    assert [run[3] for run in runs] == [1]
    assert why in str(rest.error)


@given(st.lists(st.tuples(st.sampled_from([subscribe, unsubscribe]), naive.names), max_size=20))
def test_requests_are_parsed_in_order(asked: list[tuple[object, bytes]]) -> None:
    kinds = {subscribe: SUBSCRIBE, unsubscribe: UNSUBSCRIBE}
    data = b"".join(write(name) for write, name in asked)  # type: ignore[operator]  # (functions)
    expected = [(kinds[write], name) for write, name in asked]  # type: ignore[index]  # (as above)
    for cut in range(4):
        found, rest = scan_requests(data + subscribe(b"a")[:cut], 0, SMALL)
        assert found == expected
        assert (rest.start, rest.error) == (len(data), None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"*", "a consumer sends no messages"),
        (b"\x00", "no frame begins with"),
        (b">\x00\x00\x00\x07", "a name of 7 bytes exceeds 6"),
        (b"/\xff\xff\xff\xff", "exceeds 6"),
    ],
)
def test_a_bad_request_is_refused_after_those_before_it(data: bytes, why: str) -> None:
    found, rest = scan_requests(subscribe(b"a") + data, 0, SMALL)
    assert found == [(SUBSCRIBE, b"a")]
    assert why in str(rest.error)
