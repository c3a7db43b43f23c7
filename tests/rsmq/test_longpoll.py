"""Long polling, by both clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidValue, QueueNotFound
from tambomq.rsmq import AsyncRsmq, Message, Rsmq
from tambomq.rsmq.longpoll import POLL_EVERY_S, poll_delay_s
from tambomq.rsmq.ops.messages import ReceiveResult
from tests.rsmq.conftest import Connect
from tests.servers import Server, eventually, eventually_async

Begin = Callable[..., Future[Any]]
# Longer than a test may run: a receive that waits to the end fails the test.
LONG_S = 300


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A function that starts another one in a thread."""
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


def is_waiting(db: redis.Redis, queue: str = "q") -> bool:
    """Whether a receiver is subscribed to the queue: then its first receive found nothing."""
    return bool(db.pubsub_numsub(f"rsmq:rt:{queue}")[0][1])


def calls(db: redis.Redis) -> int:
    """How many commands the server has been sent, scripts counted as one."""
    stats = db.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


@pytest.mark.parametrize(
    ("next_in_ms", "left_s", "delay"),
    [
        (None, 9.0, POLL_EVERY_S),
        (100, 9.0, 0.1),
        (0, 9.0, 0.0),
        (9000, 9.0, POLL_EVERY_S),
        (None, 0.1, 0.1),
    ],
)
def test_the_poll_delay_is_the_shortest_of_deadline_due_time_and_interval(
    next_in_ms: int | None, left_s: float, delay: float
) -> None:
    assert poll_delay_s(ReceiveResult([], next_in_ms), left_s) == delay


def test_a_message_that_is_there_is_received_without_waiting(client: Rsmq) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    assert client.receive_message("q", wait=LONG_S) is not None


def test_a_realtime_notification_wakes_the_receiver(
    connect: Connect, db: redis.Redis, begin: Begin
) -> None:
    client, sender = connect(), connect(realtime=True)
    client.create_queue("q")
    waiting = begin(client.receive_message, "q", wait=200)
    eventually(lambda: is_waiting(db))
    id = sender.send_message("q", "x")
    received = waiting.result(30)
    assert received.id == id


def test_a_message_that_becomes_visible_is_received_at_its_time(client: Rsmq) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x", delay=0.1)
    received = client.receive_message("q", wait=200)
    assert received is not None
    assert received.id == id
    assert received.fr - received.sent >= 100


def test_a_message_without_notification_is_found(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    waiting = begin(client.receive_messages, "q", 10, wait=LONG_S)
    eventually(lambda: is_waiting(db))
    id = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
    db.hset("rsmq:q:Q", id, "foreign")
    db.zadd("rsmq:q", {id: 1})
    (received,) = waiting.result(30)
    assert received.body == b"foreign"


def test_a_wait_ends_empty_and_has_not_polled_tightly(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    before, began = calls(db), time.monotonic()
    assert client.receive_message("q", wait=1.1) is None
    assert time.monotonic() - began >= 1
    # At once, after subscribing, twice a second, at the end.
    assert calls(db) - before <= 7
    assert not is_waiting(db)


def test_a_message_due_much_later_does_not_cause_tight_polling(
    client: Rsmq, db: redis.Redis
) -> None:
    client.create_queue("q")
    client.send_message("q", "x", delay=1000)
    before = calls(db)
    assert client.receive_messages("q", 5, wait=0.6) == []
    assert calls(db) - before <= 6


def test_a_damaged_id_does_not_cause_tight_polling(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.zadd("rsmq:q", {"bare": 1, "never": "inf"})
    before = calls(db)
    assert client.receive_message("q", vt=0, wait=0.6) is None
    # Two scripts, each sent by hash and then in full, and three or four more polls.
    assert calls(db) - before <= 8


def test_a_waiting_receive_raises_when_its_queue_is_deleted(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    waiting = begin(client.receive_message, "q", wait=200)
    eventually(lambda: is_waiting(db))
    client.delete_queue("q")
    with pytest.raises(QueueNotFound):
        waiting.result(30)


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "1", None, True])
def test_an_illegal_wait_receives_no_message(client: Rsmq, db: redis.Redis, wait: Any) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    before = db.dump("rsmq:q")
    with pytest.raises(InvalidValue, match="wait must be"):
        client.receive_message("q", wait=wait)
    assert db.dump("rsmq:q") == before


def test_each_message_goes_to_one_waiting_receiver(
    connect: Connect, db: redis.Redis, begin: Begin
) -> None:
    client, sender = connect(), connect(realtime=True)
    client.create_queue("q")
    waiting = [begin(client.receive_message, "q", wait=200) for _ in range(8)]
    eventually(lambda: is_waiting(db))
    ids = [sender.send_message("q", str(n)) for n in range(8)]
    assert sorted(future.result(60).id for future in waiting) == ids


def test_a_waiting_receiver_resubscribes_after_its_connections_were_cut(
    connect: Connect, db: redis.Redis, begin: Begin
) -> None:
    client, sender = connect(), connect(realtime=True)
    client.create_queue("q")
    waiting = begin(client.receive_message, "q", wait=200)
    eventually(lambda: is_waiting(db))
    db.client_kill_filter(_type="pubsub")
    eventually(lambda: is_waiting(db))
    id = sender.send_message("q", "x")
    assert waiting.result(30).id == id


async def test_waiting_tasks_share_one_pubsub_connection(
    async_rsmq: AsyncRsmq, server: Server, db: redis.Redis
) -> None:
    for n in range(5):
        await async_rsmq.create_queue(f"q{n}")
    tasks = [
        asyncio.create_task(async_rsmq.receive_message(f"q{n % 5}", wait=200)) for n in range(100)
    ]
    await eventually_async(lambda: all(is_waiting(db, f"q{n}") for n in range(5)))
    ours = [each for each in db.client_list() if each["name"].startswith("tambo")]
    assert len(ours) == 2
    assert [each["sub"] for each in ours if each["sub"] != "0"] == ["5"]
    async with AsyncRsmq(server.url, realtime=True) as sender:
        for n in range(5):
            await sender.send_messages(f"q{n}", ["x"] * 20)
        async with asyncio.timeout(60):
            received = await asyncio.gather(*tasks)
    assert len({message.id for message in received if isinstance(message, Message)}) == 100
    await eventually_async(lambda: not any(is_waiting(db, f"q{n}") for n in range(5)))


async def test_a_cancelled_wait_leaves_nothing_behind(
    async_rsmq: AsyncRsmq, db: redis.Redis
) -> None:
    await async_rsmq.create_queue("q")
    task = asyncio.create_task(async_rsmq.receive_message("q", wait=200))
    await eventually_async(lambda: is_waiting(db))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually_async(lambda: not is_waiting(db))
    await async_rsmq.send_message("q", "x")
    assert await async_rsmq.receive_message("q") is not None
