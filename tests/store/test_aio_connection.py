"""One connection, many tasks: replies stay in step whatever the tasks and the server do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import hiredis
import pytest
import redis

from tambomq.errors import StoreUnavailable
from tambomq.store import aio_connection
from tambomq.store.aio_connection import AioConnection
from tambomq.store.endpoint import Endpoint, endpoint
from tambomq.store.sync_connection import PAUSE_S
from tests.servers import Server, eventually_async
from tests.store.proxy import Proxy

PING = hiredis.pack_command(("PING",))


def echo(text: str) -> bytes:
    packed: bytes = hiredis.pack_command(("ECHO", text))
    return packed


class Transport(asyncio.Transport):
    """Keeps what is written; the test plays the server."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = ""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if name == "ssl_object" else self

    # The file descriptor that a connection polls: it never becomes readable.
    family = None

    def fileno(self) -> int:
        return 1_000_000

    def setsockopt(self, *_: Any) -> None:
        pass

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"


def played(reply_timeout_s: float = 30.0) -> tuple[AioConnection, Transport]:
    """A connection whose server is the test. Its socket never becomes readable."""
    connection, transport = (
        AioConnection(Endpoint(reply_timeout_s=reply_timeout_s), ("h", 1), None),
        Transport(),
    )
    connection.connection_made(transport)
    connection._poller = type("Quiet", (), {"poll": lambda *_: []})()
    return connection, transport


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[AioConnection]:
    connection = await AioConnection.open(endpoint(server.url), ("127.0.0.1", server.port))
    yield connection
    connection.close()
    await eventually_async(lambda: connection._transport is None)


async def test_each_task_gets_its_own_replies(connection: AioConnection) -> None:
    async def work(name: int) -> None:
        for turn in range(50):
            text = f"{name}-{turn}"
            assert await connection.exchange(echo(text) + PING, 2) == [text.encode(), b"PONG"]

    async with asyncio.TaskGroup() as tasks:
        for name in range(50):
            tasks.create_task(work(name))


async def test_the_first_command_leaves_at_once_and_others_of_its_turn_four_a_write() -> None:
    connection, transport = played()
    tasks = [asyncio.ensure_future(connection.exchange(PING, 1)) for _ in range(10)]
    await eventually_async(lambda: len(transport.written) == 4)
    assert transport.written == [PING, PING * 4, PING * 4, PING]
    connection.data_received(b"+PONG\r\n" * 10)
    assert await asyncio.gather(*tasks) == [[b"PONG"]] * 10
    connection.connection_lost(None)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_replies_may_come_in_pieces_of_any_size(size: int) -> None:
    connection, _ = played()
    first = asyncio.ensure_future(connection.exchange(PING + PING, 2))
    second = asyncio.ensure_future(connection.exchange(PING, 1))
    await asyncio.sleep(0)
    replies = b"$3\r\none\r\n:2\r\n*2\r\n$1\r\na\r\n-ERR no\r\n"
    for at in range(0, len(replies), size):
        connection.data_received(replies[at : at + size])
    assert await first == [b"one", 2]
    assert (await second)[0][0] == b"a"
    connection.connection_lost(None)


async def test_a_cancelled_call_leaves_the_others_in_step(connection: AioConnection) -> None:
    tasks = [asyncio.ensure_future(connection.exchange(echo(str(i)), 1)) for i in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for i in range(1, 100, 2):
        assert done[i] == [str(i).encode()]
    assert all(isinstance(each, asyncio.CancelledError) for each in done[::2])
    assert await connection.exchange(echo("last"), 1) == [b"last"]


async def test_calls_wait_while_the_server_does_not_keep_up() -> None:
    connection, transport = played()
    connection.pause_writing()
    pending = asyncio.ensure_future(connection.exchange(PING, 1))
    await asyncio.sleep(0)
    assert not transport.written
    connection.resume_writing()
    await eventually_async(lambda: transport.written)
    connection.data_received(b"+PONG\r\n")
    assert await pending == [b"PONG"]
    connection.connection_lost(None)


async def test_large_bodies_of_many_tasks_all_arrive(connection: AioConnection) -> None:
    bodies = [bytes([65 + i]) * (1 << 20) for i in range(20)]
    sent = (connection.exchange(hiredis.pack_command(("ECHO", body)), 1) for body in bodies)
    assert await asyncio.gather(*sent) == [[body] for body in bodies]


async def test_a_broken_connection_gives_what_came_before() -> None:
    connection, transport = played()
    first = asyncio.ensure_future(connection.exchange(PING, 1))
    second = asyncio.ensure_future(connection.exchange(PING * 3, 3))
    third = asyncio.ensure_future(connection.exchange(PING, 1))
    await eventually_async(lambda: len(transport.written) == 2)
    connection.data_received(b"+PONG\r\n+PONG\r\n")
    connection.connection_lost(ConnectionResetError("reset"))
    assert await first == [b"PONG"]
    assert await second == [b"PONG"]
    assert await third == []
    assert not connection.is_usable


async def test_the_error_says_that_a_call_was_never_sent() -> None:
    connection, transport = played()
    sent = asyncio.ensure_future(connection.exchange(PING, 1))
    await eventually_async(lambda: transport.written)
    unsent = asyncio.ensure_future(connection.exchange(PING, 1))
    connection.pause_writing()
    pending = asyncio.ensure_future(connection.exchange(PING, 1))
    assert connection._unwritten == [PING]
    connection.connection_lost(ConnectionResetError("reset"))
    assert await sent == []
    for call in (unsent, pending):
        with pytest.raises(StoreUnavailable, match="before the call was sent: reset"):
            await call


async def test_a_retired_connection_takes_no_calls_and_closes_after_its_last_reply() -> None:
    connection, transport = played()
    last = asyncio.ensure_future(connection.exchange(PING, 1))
    await eventually_async(lambda: transport.written)
    connection.retire()
    assert not connection.is_usable
    assert not transport.is_closing()
    with pytest.raises(StoreUnavailable):
        await connection.exchange(PING, 1)
    connection.data_received(b"+PONG\r\n")
    assert await last == [b"PONG"]
    assert transport.closed == "closed"
    connection.connection_lost(None)


async def test_a_retired_connection_without_calls_in_flight_closes_at_once() -> None:
    connection, transport = played()
    connection.retire()
    assert transport.closed == "closed"


async def test_an_unexpected_reply_ends_the_connection() -> None:
    connection, transport = played()
    connection.data_received(b"-ERR max number of clients reached\r\n")
    assert transport.closed == "aborted"
    assert "max number of clients" in str(connection.reason)


async def test_garbage_ends_the_connection() -> None:
    connection, transport = played()
    connection.data_received(b"HTTP/1.1 400\r\n")
    assert transport.closed == "aborted"
    assert "not Redis protocol" in str(connection.reason)


async def test_silence_counts_from_the_call_and_not_from_the_last_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, transport = played(reply_timeout_s=30)
    start = connection._loop.time()
    now = [start]
    monkeypatch.setattr(connection._loop, "time", lambda: now[0])
    old = asyncio.ensure_future(connection.exchange(PING, 1))
    for _ in range(2):
        await asyncio.sleep(0)
    connection.data_received(b"+PONG\r\n")
    assert await old == [b"PONG"]
    now[0] = start + 29.9
    young = asyncio.ensure_future(connection.exchange(PING, 1))
    for _ in range(2):
        await asyncio.sleep(0)
    assert len(transport.written) == 2
    now[0] = start + 30.1
    connection._check_replies()
    assert not transport.is_closing()
    now[0] = start + 60
    connection._check_replies()
    assert transport.closed == "aborted"
    now[0] = start
    connection.connection_lost(None)
    assert await young == []


async def test_a_failed_connect_leaves_no_connection(proxy: Proxy) -> None:
    proxy.silent = True
    opening = asyncio.create_task(
        AioConnection.open(endpoint(proxy.url), ("127.0.0.1", proxy.port))
    )
    await eventually_async(lambda: proxy.requests)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await eventually_async(lambda: not proxy._links)


async def test_a_connection_that_the_server_closed_is_not_usable(
    connection: AioConnection, db: redis.Redis
) -> None:
    assert connection.is_usable
    db.client_kill_filter(_type="normal", skipme=True)
    await eventually_async(lambda: not connection.is_usable)


async def test_a_command_is_written_before_the_loop_is_kept_spinning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, transport = played()
    arranged: list[bytes] = []
    monkeypatch.setattr(connection, "_start_busy_poll", lambda: arranged.extend(transport.written))
    reply = connection.exchange(PING, 1)
    assert arranged == [PING]
    connection.data_received(b"+PONG\r\n")
    assert await reply == [b"PONG"]


async def test_nothing_is_busy_polled_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = played()
    connection._is_local = connection._is_fast = True
    monkeypatch.setattr(aio_connection, "time", Mock(perf_counter=Mock(return_value=1.0)))
    for pause, is_polled in ((0.9, True), (1.1, False), (0.9, True)):
        connection._sent_at = 1.0 - pause * PAUSE_S
        reply = connection.exchange(PING, 1)
        assert connection._is_polling is is_polled
        connection.data_received(b"+PONG\r\n")
        assert await reply == [b"PONG"]
        await asyncio.sleep(0)  # the last poll finds nothing to wait for
