from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import StoreError, StoreRefused, StoreUnavailable
from tambomq.store.endpoint import endpoint
from tambomq.store.snapshot import rdb_pieces, stream_snapshot
from tests.servers import Server, binaries
from tests.servers.sentinel import Sentinels

MARKER = b"f" * 40
END_OF_RDB = 0xFF


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return (data[start:end] for start, end in pairwise(edges))


@pytest.mark.parametrize("head", [b"$EOF:" + MARKER, b"$11"])
@given(cuts=st.lists(st.integers(0, 1000)), waits=st.integers(0, 3))
def test_any_split_of_the_reply_gives_the_same_file(
    head: bytes, cuts: list[int], waits: int
) -> None:
    rdb = b"REDIS0011\xff!"
    after = MARKER if head.startswith(b"$EOF") else b""
    data = b"\n" * waits + head + b"\r\n" + rdb + after
    assert b"".join(rdb_pieces(pieces(data, cuts))) == rdb


@pytest.mark.parametrize(
    "reply", [b"$EOF:" + MARKER + b"\r\nREDIS", b"$11\r\nREDIS", b"\n\n", b"$EOF", b""]
)
def test_reply_that_breaks_off_is_no_file(reply: bytes) -> None:
    with pytest.raises(ConnectionError):
        list(rdb_pieces(pieces(reply, [3])))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"-NOPERM no permission\r\n", StoreRefused),
        (b"-LOADING loading\r\n", StoreUnavailable),
        (b"+OK\r\n", StoreError),
        (b"$-1\r\n", StoreError),
        (b"$EOF:short\r\n", StoreError),
        (b"x" * 5000, StoreError),
    ],
)
def test_what_is_no_file_is_an_error(reply: bytes, error: type[StoreError]) -> None:
    with pytest.raises(error):
        list(rdb_pieces(pieces(reply, [])))


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_snapshot_has_what_was_written_before_it(private_server: Server, diskless: str) -> None:
    with redis.Redis.from_url(private_server.url) as client:
        client.config_set("repl-diskless-sync", diskless)
        client.config_set("repl-diskless-sync-delay", 0)
        client.set("name", "a value that is not compressed")
    data = b"".join(stream_snapshot(endpoint(private_server.url)))
    assert data.startswith(b"REDIS")
    assert data[-9] == END_OF_RDB
    assert b"a value that is not compressed" in data


def test_server_that_ends_during_the_copy_is_unavailable() -> None:
    with Server(binaries.valkey(), "--repl-diskless-sync-delay", "60") as server:
        timer = threading.Timer(0.2, server.kill)
        timer.start()
        with pytest.raises(StoreUnavailable):
            list(stream_snapshot(endpoint(server.url)))
        timer.join()


def test_no_server_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        list(stream_snapshot(endpoint("redis://127.0.0.1:1,127.0.0.1:2")))


@pytest.mark.slow
def test_snapshot_is_that_of_the_primary_that_sentinels_name() -> None:
    with Sentinels() as sentinels:
        sentinels.ask(sentinels.primary, "SET", "name", "a value that is not compressed")
        sentinels.ask(sentinels.primary, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
        assert b"is not compressed" in b"".join(stream_snapshot(endpoint(sentinels.url)))
