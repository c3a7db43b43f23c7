"""One connection, many tasks: replies stay in step whatever the tasks and the server do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import hiredis
import pytest
import redis

from tambomq.errors import StoreUnavailable
from tambomq.store.connect import Endpoint, endpoint
from tambomq.store.lane import Lane
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

    def get_extra_info(self, *_: Any) -> Any:
        return self

    # What a lane asks of its socket: a number that never has news.
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


def played(reply_timeout_s: float = 30.0) -> tuple[Lane, Transport]:
    """A lane whose server is the test. Nothing is ever to be read from its socket."""
    lane, transport = Lane(Endpoint(reply_timeout_s=reply_timeout_s), ("h", 1), None), Transport()
    lane.connection_made(transport)
    lane._news = type("Quiet", (), {"poll": lambda *_: []})()
    return lane, transport


@pytest.fixture
async def lane(server: Server) -> AsyncIterator[Lane]:
    lane = await Lane.open(endpoint(server.url), ("127.0.0.1", server.port))
    yield lane
    lane.close()
    await eventually_async(lambda: lane._transport is None)


async def test_each_task_gets_its_own_replies(lane: Lane) -> None:
    async def work(name: int) -> None:
        for turn in range(50):
            text = f"{name}-{turn}"
            assert await lane.exchange(echo(text) + PING, 2) == [text.encode(), b"PONG"]

    async with asyncio.TaskGroup() as tasks:
        for name in range(50):
            tasks.create_task(work(name))


async def test_the_first_command_leaves_at_once_and_others_of_its_turn_four_a_write() -> None:
    lane, transport = played()
    tasks = [asyncio.ensure_future(lane.exchange(PING, 1)) for _ in range(10)]
    await eventually_async(lambda: len(transport.written) == 4)
    assert transport.written == [PING, PING * 4, PING * 4, PING]
    lane.data_received(b"+PONG\r\n" * 10)
    assert await asyncio.gather(*tasks) == [[b"PONG"]] * 10
    lane.connection_lost(None)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_replies_may_come_in_pieces_of_any_size(size: int) -> None:
    lane, _ = played()
    first = asyncio.ensure_future(lane.exchange(PING + PING, 2))
    second = asyncio.ensure_future(lane.exchange(PING, 1))
    await asyncio.sleep(0)
    replies = b"$3\r\none\r\n:2\r\n*2\r\n$1\r\na\r\n-ERR no\r\n"
    for at in range(0, len(replies), size):
        lane.data_received(replies[at : at + size])
    assert await first == [b"one", 2]
    assert (await second)[0][0] == b"a"
    lane.connection_lost(None)


async def test_a_cancelled_call_leaves_the_others_in_step(lane: Lane) -> None:
    tasks = [asyncio.ensure_future(lane.exchange(echo(str(i)), 1)) for i in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for i in range(1, 100, 2):
        assert done[i] == [str(i).encode()]
    assert all(isinstance(each, asyncio.CancelledError) for each in done[::2])
    assert await lane.exchange(echo("last"), 1) == [b"last"]


async def test_calls_wait_while_the_server_does_not_keep_up() -> None:
    lane, transport = played()
    lane.pause_writing()
    waiting = asyncio.ensure_future(lane.exchange(PING, 1))
    await asyncio.sleep(0)
    assert not transport.written
    lane.resume_writing()
    await eventually_async(lambda: transport.written)
    lane.data_received(b"+PONG\r\n")
    assert await waiting == [b"PONG"]
    lane.connection_lost(None)


async def test_large_bodies_of_many_tasks_all_arrive(lane: Lane) -> None:
    bodies = [bytes([65 + i]) * (1 << 20) for i in range(20)]
    sent = (lane.exchange(hiredis.pack_command(("ECHO", body)), 1) for body in bodies)
    assert await asyncio.gather(*sent) == [[body] for body in bodies]


async def test_a_broken_connection_gives_what_came_before() -> None:
    lane, transport = played()
    first = asyncio.ensure_future(lane.exchange(PING, 1))
    second = asyncio.ensure_future(lane.exchange(PING * 3, 3))
    third = asyncio.ensure_future(lane.exchange(PING, 1))
    await eventually_async(lambda: len(transport.written) == 2)
    lane.data_received(b"+PONG\r\n+PONG\r\n")
    lane.connection_lost(ConnectionResetError("reset"))
    assert await first == [b"PONG"]
    assert await second == [b"PONG"]
    assert await third == []
    assert not lane.sound


async def test_what_was_never_sent_says_so() -> None:
    lane, transport = played()
    sent = asyncio.ensure_future(lane.exchange(PING, 1))
    await eventually_async(lambda: transport.written)
    unsent = asyncio.ensure_future(lane.exchange(PING, 1))
    lane.pause_writing()
    waiting = asyncio.ensure_future(lane.exchange(PING, 1))
    assert lane._outbox == [PING]
    lane.connection_lost(ConnectionResetError("reset"))
    assert await sent == []
    for call in (unsent, waiting):
        with pytest.raises(StoreUnavailable, match="before the call was sent: reset"):
            await call


async def test_a_retired_lane_takes_no_calls_and_ends_with_its_last_reply() -> None:
    lane, transport = played()
    last = asyncio.ensure_future(lane.exchange(PING, 1))
    await eventually_async(lambda: transport.written)
    lane.retire()
    assert not lane.sound
    assert not transport.is_closing()
    with pytest.raises(StoreUnavailable):
        await lane.exchange(PING, 1)
    lane.data_received(b"+PONG\r\n")
    assert await last == [b"PONG"]
    assert transport.closed == "closed"
    lane.connection_lost(None)


async def test_a_retired_lane_that_owes_nothing_ends_at_once() -> None:
    lane, transport = played()
    lane.retire()
    assert transport.closed == "closed"


async def test_an_unasked_reply_ends_the_connection() -> None:
    lane, transport = played()
    lane.data_received(b"-ERR max number of clients reached\r\n")
    assert transport.closed == "aborted"
    assert "max number of clients" in str(lane.reason)


async def test_garbage_ends_the_connection() -> None:
    lane, transport = played()
    lane.data_received(b"HTTP/1.1 400\r\n")
    assert transport.closed == "aborted"
    assert "no Redis" in str(lane.reason)


async def test_silence_counts_from_the_call_and_not_from_the_last_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane, transport = played(reply_timeout_s=30)
    start = lane._loop.time()
    now = [start]
    monkeypatch.setattr(lane._loop, "time", lambda: now[0])
    old = asyncio.ensure_future(lane.exchange(PING, 1))
    for _ in range(2):
        await asyncio.sleep(0)
    lane.data_received(b"+PONG\r\n")
    assert await old == [b"PONG"]
    now[0] = start + 29.9
    young = asyncio.ensure_future(lane.exchange(PING, 1))
    for _ in range(2):
        await asyncio.sleep(0)
    assert len(transport.written) == 2
    now[0] = start + 30.1
    lane._check_replies()
    assert not transport.is_closing()
    now[0] = start + 60
    lane._check_replies()
    assert transport.closed == "aborted"
    now[0] = start
    lane.connection_lost(None)
    assert await young == []


async def test_a_lane_that_cannot_be_opened_leaves_no_connection(proxy: Proxy) -> None:
    proxy.silent = True
    opening = asyncio.create_task(Lane.open(endpoint(proxy.url), ("127.0.0.1", proxy.port)))
    await eventually_async(lambda: proxy.requests)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await eventually_async(lambda: not proxy._links)


async def test_a_connection_that_the_server_closed_is_not_sound(
    lane: Lane, db: redis.Redis
) -> None:
    assert lane.sound
    db.client_kill_filter(_type="normal", skipme=True)
    await eventually_async(lambda: not lane.sound)
