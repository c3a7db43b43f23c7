"""The protocol state of one client: any split of the bytes is parsed alike, errors end it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.kqueue.connection import Connection, Role
from tambomq.kqueue.frames import SUBSCRIBE, UNSUBSCRIBE, Request
from tests.kqueue import naive
from tests.kqueue.naive import SMALL, message, subscribe, u32, unsubscribe


class AnyRoute(dict[bytes, bytes]):
    """Each name is its own target."""

    def __missing__(self, name: bytes) -> bytes:
        return name


class Parsed:
    """All that one connection parsed from *pieces*."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.connection: Connection[bytes] = Connection(AnyRoute(), SMALL)
        self.messages: list[tuple[bytes, bytes]] = []
        self.requests: list[Request] = []
        self.error = ""
        for piece in pieces:
            received = self.connection.receive(memoryview(piece))
            for start, end, name, count in received.runs:
                found, _, _ = naive.decode(received.data[start:end], SMALL)
                assert len(found) == count
                assert {each[0] for each in found} == {name}
                self.messages += found
            self.requests += received.requests
            if received.error:
                self.error = str(received.error)
                return


@given(naive.messages | naive.repeating, naive.cuts)
def test_any_split_of_a_producers_bytes_is_parsed_alike(
    found: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    parsed = Parsed(naive.pieces(b"produce" + naive.stream(found), cuts))
    assert parsed.connection.role is Role.PRODUCER
    assert (parsed.messages, parsed.requests, parsed.error) == (found, [], "")


@given(st.lists(st.tuples(st.booleans(), naive.names), max_size=20), naive.cuts)
def test_any_split_of_a_consumers_bytes_is_parsed_alike(
    asked: list[tuple[bool, bytes]], cuts: list[int]
) -> None:
    frames = [(subscribe if more else unsubscribe)(name) for more, name in asked]
    parsed = Parsed(naive.pieces(b"consume" + b"".join(frames), cuts))
    assert parsed.connection.role is Role.CONSUMER
    assert parsed.requests == [(SUBSCRIBE if more else UNSUBSCRIBE, name) for more, name in asked]
    assert (parsed.messages, parsed.error) == ([], "")


@given(naive.messages, st.binary(max_size=30), naive.cuts)
def test_garbage_is_an_error_at_any_split_after_the_messages_before_it(
    found: list[tuple[bytes, bytes]], garbage: bytes, cuts: list[int]
) -> None:
    data = naive.stream(found) + garbage
    expected, _, is_bad = naive.decode(data, SMALL)
    parsed = Parsed(naive.pieces(b"produce" + data, cuts))
    assert (parsed.messages, bool(parsed.error)) == (expected, is_bad)


@given(st.binary(min_size=7, max_size=7), naive.cuts)
def test_an_unknown_role_is_an_error(role: bytes, cuts: list[int]) -> None:
    parsed = Parsed(naive.pieces(role, cuts))
    assert bool(parsed.error) == (role not in (b"produce", b"consume", b"healthz"))


@pytest.mark.parametrize("role", [b"PRODUCE", b"GET / H", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_the_error_quotes_an_unknown_role(role: bytes) -> None:
    assert "unknown role" in Parsed([role]).error


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"produce" + subscribe(b"a"), "only a consumer subscribes"),
        (b"produce" + unsubscribe(b""), "only a consumer subscribes"),
        (b"consume" + message(b"a", b"1"), "a consumer sends no messages"),
        (b"produceproduce", "no frame begins with b'p'"),
        (b"consume\n", "no frame begins with"),
    ],
)
def test_a_frame_of_another_role_is_an_error(data: bytes, why: str) -> None:
    for cuts in ([], list(range(len(data)))):
        assert why in Parsed(naive.pieces(data, cuts)).error


def test_bytes_after_a_probe_are_ignored() -> None:
    parsed = Parsed([b"healthz", b"\r\n", b"anything"])
    assert parsed.connection.role is Role.PROBE
    assert not parsed.error


def test_no_memory_is_reserved_for_an_announced_length() -> None:
    connection: Connection[bytes] = Connection(AnyRoute())
    connection.receive(b"produce*" + u32(1) + b"a" + u32(16 * 1024 * 1024) + b"begun")
    assert connection._partial is not None
    assert connection._partial.__alloc__() < 100
    connection.receive(b"x" * 1000)
    assert connection._partial.__alloc__() < 2500


def test_no_buffer_is_kept_between_complete_frames() -> None:
    connection: Connection[bytes] = Connection(AnyRoute())
    frame = message(b"a", b"x" * 100)
    connection.receive(b"produce" + frame[:50])
    assert connection._partial is not None
    connection.receive(frame[50:])
    assert connection._partial is None


@given(st.lists(naive.names.map(lambda name: message(name, b"x")) | st.just(bytes(5)), max_size=20))
def test_a_lenient_connection_skips_nul_bytes(parts: list[bytes]) -> None:
    connection: Connection[bytes] = Connection(AnyRoute(), SMALL, lenient=True)
    received = connection.receive(bytes(5) + b"produce" + b"".join(parts))
    frames = [part for part in parts if part != bytes(5)]
    assert connection.role is received.role is Role.PRODUCER
    assert sum(run[3] for run in received.runs) == len(frames)
    # A target of all messages gets them as one slice.
    assert received.data == (b"produce" + b"".join(frames))
    assert b"".join(received.data[run[0] : run[1]] for run in received.runs) == b"".join(frames)
    assert received.error is None
    assert connection.partial_bytes == 0


def test_a_connection_reports_its_partial_bytes_and_whether_the_frame_is_new() -> None:
    frame = message(b"orders", b"a body")
    stream = b"produce" + frame + frame
    connection: Connection[str] = Connection({b"orders": "a target"})
    for at in range(len(stream)):
        connection.receive(stream[at : at + 1])
        since = (at + 1 - 7) % len(frame) if at >= 7 else (at + 1) % 7
        assert connection.partial_bytes == since
        if since:
            assert connection.is_new_frame is (since == 1)
