"""The conversation with one client: any split means the same, and a wrong word ends it."""

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


class Told:
    """Everything one connection understood from *pieces*."""

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
def test_any_split_of_a_producers_bytes_means_the_same(
    found: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    told = Told(naive.pieces(b"produce" + naive.stream(found), cuts))
    assert told.connection.role is Role.PRODUCER
    assert (told.messages, told.requests, told.error) == (found, [], "")


@given(st.lists(st.tuples(st.booleans(), naive.names), max_size=20), naive.cuts)
def test_any_split_of_a_consumers_bytes_means_the_same(
    asked: list[tuple[bool, bytes]], cuts: list[int]
) -> None:
    frames = [(subscribe if more else unsubscribe)(name) for more, name in asked]
    told = Told(naive.pieces(b"consume" + b"".join(frames), cuts))
    assert told.connection.role is Role.CONSUMER
    assert told.requests == [(SUBSCRIBE if more else UNSUBSCRIBE, name) for more, name in asked]
    assert (told.messages, told.error) == ([], "")


@given(naive.messages, st.binary(max_size=30), naive.cuts)
def test_garbage_is_an_error_at_any_split_and_what_came_before_it_counts(
    found: list[tuple[bytes, bytes]], garbage: bytes, cuts: list[int]
) -> None:
    data = naive.stream(found) + garbage
    wanted, _, is_bad = naive.decode(data, SMALL)
    told = Told(naive.pieces(b"produce" + data, cuts))
    assert (told.messages, bool(told.error)) == (wanted, is_bad)


@given(st.binary(min_size=7, max_size=7), naive.cuts)
def test_other_roles_do_not_exist(role: bytes, cuts: list[int]) -> None:
    told = Told(naive.pieces(role, cuts))
    assert bool(told.error) == (role not in (b"produce", b"consume", b"healthz"))


@pytest.mark.parametrize("role", [b"PRODUCE", b"GET / H", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_a_role_is_refused_with_its_name(role: bytes) -> None:
    assert "no role is called" in Told([role]).error


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
        assert why in Told(naive.pieces(data, cuts)).error


def test_a_probe_may_say_what_it_likes() -> None:
    told = Told([b"healthz", b"\r\n", b"anything"])
    assert told.connection.role is Role.PROBE
    assert not told.error


def test_an_announced_length_is_not_reserved() -> None:
    connection: Connection[bytes] = Connection(AnyRoute())
    connection.receive(b"produce*" + u32(1) + b"a" + u32(16 * 1024 * 1024) + b"begun")
    assert connection._begun is not None
    assert connection._begun.__alloc__() < 100
    connection.receive(b"x" * 1000)
    assert connection._begun.__alloc__() < 2500


def test_nothing_is_kept_between_whole_frames() -> None:
    connection: Connection[bytes] = Connection(AnyRoute())
    frame = message(b"a", b"x" * 100)
    connection.receive(b"produce" + frame[:50])
    assert connection._begun is not None
    connection.receive(frame[50:])
    assert connection._begun is None


@given(st.lists(naive.names.map(lambda name: message(name, b"x")) | st.just(bytes(5)), max_size=20))
def test_a_lenient_connection_reads_on_behind_nul_bytes(parts: list[bytes]) -> None:
    connection: Connection[bytes] = Connection(AnyRoute(), SMALL, lenient=True)
    received = connection.receive(bytes(5) + b"produce" + b"".join(parts))
    frames = [part for part in parts if part != bytes(5)]
    assert connection.role is received.role is Role.PRODUCER
    assert sum(run[3] for run in received.runs) == len(frames)
    # Whoever gets all of it gets it as one slice.
    assert received.data == (b"produce" + b"".join(frames))
    assert b"".join(received.data[run[0] : run[1]] for run in received.runs) == b"".join(frames)
    assert received.error is None
    assert connection.unfinished == 0
