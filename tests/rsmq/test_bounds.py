"""Bounds of a queue: messages, bytes and a TTL, and what happens to a message beyond them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import redis

from tambomq.errors import (
    BatchIncomplete,
    InvalidFormat,
    InvalidValue,
    NothingToSet,
    QueueFull,
    QueueNotFound,
)
from tambomq.rsmq import QueueBounds, Rsmq
from tambomq.rsmq.async_client import AsyncRsmq
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import bounds as bounds_ops
from tambomq.rsmq.ops import messages as message_ops
from tambomq.store.sync import Store
from tests.rsmq.conftest import Connect
from tests.servers import Server

KEYS = Keys()


def age(db: redis.Redis, queue: str, *ids: str, by_s: float) -> None:
    """Let messages be visible for *by_s* longer."""
    for id in ids:
        db.zincrby(KEYS.messages(queue), -by_s * 1000, id)


def test_a_queue_has_no_bounds_unless_they_are_set(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.send_message("orders", b"one")
    assert client.get_queue_attributes("orders").bounds == QueueBounds()
    assert not client.get_queue_attributes("orders").bounds.any
    assert not db.exists(KEYS.bounds("orders"), KEYS.sizes("orders"))


def test_a_send_beyond_max_messages_is_refused_with_the_bound(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=2)
    client.send_messages("orders", [b"one", b"two"])
    with pytest.raises(QueueFull, match="'orders' holds 2 of 2 messages") as caught:
        client.send_message("orders", b"three")
    assert (caught.value.queue, caught.value.bound) == ("orders", "max_messages")
    assert (caught.value.cap, caught.value.held) == (2, 2)
    found = client.get_queue_attributes("orders")
    assert (found.msgs, found.totalsent, found.bounds.refused) == (2, 2, 1)


def test_hidden_and_delayed_messages_count(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=2)
    client.send_message("orders", b"received")
    assert client.receive_message("orders")
    client.send_message("orders", b"delayed", delay=60)
    with pytest.raises(QueueFull):
        client.send_message("orders", b"three")


def test_a_deleted_message_makes_space(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=1, max_bytes=3)
    client.delete_message("orders", client.send_message("orders", b"one"))
    assert client.send_message("orders", b"two")
    assert client.pop_message("orders")
    assert client.send_message("orders", b"six")
    client.purge_queue("orders")
    assert client.send_message("orders", b"ten")


def test_a_send_beyond_max_bytes_is_refused_with_what_is_held(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_bytes=10)
    client.send_message("orders", b"1234567")
    with pytest.raises(QueueFull, match="holds 7 of 10 bytes") as caught:
        client.send_message("orders", b"1234")
    assert (caught.value.bound, caught.value.cap, caught.value.held) == ("max_bytes", 10, 7)
    client.send_message("orders", b"123")


def test_bytes_that_were_there_before_the_bound_count(client: Rsmq) -> None:
    client.create_queue("orders")
    client.send_messages("orders", [b"123"] * 3)
    assert client.set_queue_bounds("orders", max_bytes=10).bytes == 9
    assert client.set_queue_bounds("orders", max_bytes=11).bytes == 9
    with pytest.raises(QueueFull):
        client.send_message("orders", b"123")


def test_deletions_by_other_libraries_make_space(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_bytes=2000)
    ids = client.send_messages("orders", [b"x"] * 2000)
    for id in ids[5:1500]:
        db.zrem(KEYS.messages("orders"), id)
        db.hdel(KEYS.data("orders"), id)
    assert len(client.send_messages("orders", [b"x"] * 1495)) == 1495
    with pytest.raises(QueueFull):
        client.send_message("orders", b"x")


def test_a_full_queue_takes_as_much_as_its_oldest_messages_left(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_bytes=20_000)
    client.send_messages("orders", [b"x"] * 20_000)
    for _ in range(30):
        with pytest.raises(QueueFull):
            client.send_message("orders", b"x")
    for _ in range(5):
        client.pop_message("orders")
    assert len(client.send_messages("orders", [b"x"] * 5)) == 5
    with pytest.raises(QueueFull):
        client.send_message("orders", b"x")


def test_a_chunk_of_a_batch_is_refused_as_a_whole(
    client: Rsmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "CHUNK", 2)
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=3)
    with pytest.raises(BatchIncomplete) as caught:
        client.send_messages("orders", [b"1", b"2", b"3", b"4"])
    assert [id is not None for id in caught.value.ids] == [True, True, False, False]
    assert [each.body for each in client.peek_messages("orders")] == [b"1", b"2"]


def test_messages_that_do_not_fit_become_dead_letters_with_the_bound(client: Rsmq) -> None:
    client.create_queue("orders", vt=7)
    client.set_queue_bounds("orders", max_messages=2, overflow="dead-letter")
    ids = client.send_messages("orders", [b"1", b"2", b"3", b"4"])
    assert [each.id for each in client.peek_messages("orders")] == ids[:2]
    dead = client.peek_messages("orders-dead")
    assert [(each.id, each.body) for each in dead] == [(ids[2], b"3"), (ids[3], b"4")]
    assert {each.reason for each in dead} == {"queue full: max_messages"}
    found, dead_queue = map(client.get_queue_attributes, ("orders", "orders-dead"))
    assert (found.totalsent, found.bounds.overflowed, found.bounds.refused) == (2, 2, 0)
    assert (dead_queue.totalsent, dead_queue.vt, dead_queue.maxsize) == (2, 7, -1)


def test_a_message_that_does_not_fit_is_not_overtaken_by_a_smaller_one(client: Rsmq) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_bytes=5, overflow="dead-letter", dead="graves")
    client.send_messages("orders", [b"123", b"456", b"7"])
    assert [each.body for each in client.peek_messages("orders")] == [b"123"]
    dead = client.peek_messages("graves")
    assert [each.body for each in dead] == [b"456", b"7"]
    assert {each.reason for each in dead} == {"queue full: max_bytes"}


def test_an_expired_message_is_dead_lettered_by_the_receive_that_meets_it(
    client: Rsmq, db: redis.Redis
) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", message_ttl_s=60)
    old, new = client.send_messages("orders", [b"old", b"new"])
    age(db, "orders", old, by_s=61)
    received = client.receive_message("orders")
    assert received is not None
    assert received.id == new
    (dead,) = client.peek_messages("orders-dead")
    assert (dead.id, dead.body, dead.reason) == (old, b"old", "expired")
    assert client.get_queue_attributes("orders").bounds.expired == 1


@pytest.mark.parametrize("how", ["receive_messages", "pop", "sweep"])
def test_more_expired_messages_than_one_script_moves(
    client: Rsmq, db: redis.Redis, how: str
) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", message_ttl_s=60)
    ids = client.send_messages("orders", [b"x"] * 1200)
    age(db, "orders", *ids, by_s=100)
    last = client.send_message("orders", b"last")
    if how == "receive_messages":
        assert [each.id for each in client.receive_messages("orders", 5)] == [last]
    elif how == "pop":
        popped = client.pop_message("orders")
        assert popped is not None
        assert popped.id == last
    else:
        assert client.sweep_expired("orders") == 1200
        assert client.sweep_expired("orders") == 0
    assert client.get_queue_attributes("orders-dead").msgs == 1200


def test_one_script_moves_few_large_messages(client: Rsmq, server: Server, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", message_ttl_s=60)
    ids = client.send_messages("orders", [b"x" * 60_000] * 60)
    age(db, "orders", *ids, by_s=100)
    (call,) = next(bounds_ops.sweep(KEYS, "orders"))
    with closing(Store(server.url)) as store:
        moved, has_more = store.run(call)
    assert 10 < moved < 30
    assert has_more
    assert client.receive_message("orders") is None
    assert client.get_queue_attributes("orders-dead").msgs == 60


def test_hidden_and_delayed_messages_do_not_expire(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", message_ttl_s=0.001)
    client.send_message("orders", b"delayed", delay=60)
    client.set_queue_bounds("orders", message_ttl_s=60)
    client.send_message("orders", b"hidden")
    assert client.receive_message("orders", vt=60)
    client.set_queue_bounds("orders", message_ttl_s=0.001)
    assert client.sweep_expired("orders") == 0
    assert client.get_queue_attributes("orders").msgs == 2


def test_an_expired_id_without_a_body_blocks_nothing(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", message_ttl_s=60)
    damaged, old = client.send_messages("orders", [b"damaged", b"old"])
    db.hdel(KEYS.data("orders"), damaged)
    age(db, "orders", damaged, old, by_s=100)
    assert client.receive_message("orders") is None
    assert [each.id for each in client.peek_messages("orders-dead")] == [old]


def test_a_removed_bound_leaves_no_key(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=1, max_bytes=1, message_ttl_s=1)
    client.send_message("orders", b"x")
    found = client.set_queue_bounds("orders", max_messages=-1)
    assert (found.max_messages, found.max_bytes, found.message_ttl_s) == (-1, 1, 1)
    client.set_queue_bounds("orders", max_bytes=-1, message_ttl_s=-1)
    assert not db.exists(KEYS.bounds("orders"), KEYS.sizes("orders"))
    client.send_messages("orders", [b"12345"] * 5)


def test_a_deleted_queue_leaves_no_bounds(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_bytes=5)
    client.send_message("orders", b"12345")
    client.delete_queue("orders")
    assert not db.keys()


def test_bad_bounds_are_refused_before_anything_is_sent(client: Rsmq) -> None:
    with pytest.raises(NothingToSet, match="max_messages"):
        client.set_queue_bounds("orders")
    for options in (
        {"max_messages": 0},
        {"max_messages": True},
        {"max_bytes": -2},
        {"max_bytes": 2**53 + 1},
        {"message_ttl_s": 0},
        {"message_ttl_s": float("nan")},
        {"overflow": "trim"},
    ):
        with pytest.raises(InvalidValue):
            client.set_queue_bounds("orders", **options)
    with pytest.raises(InvalidFormat):
        client.set_queue_bounds("orders", dead="orders")
    with pytest.raises(QueueNotFound):
        client.set_queue_bounds("orders", max_messages=1)
    with pytest.raises(QueueNotFound):
        client.sweep_expired("orders")


def _send(client: Rsmq, sender: int) -> tuple[set[str], int]:
    """Send 20 messages; the accepted ids, and how many were refused."""
    accepted, refused = set(), 0
    for number in range(20):
        try:
            accepted.add(client.send_message("orders", b"x" * ((sender + number) % 12)))
        except QueueFull:
            refused += 1
        assert client.get_queue_attributes("orders").msgs <= 40
    return accepted, refused


def _handle(client: Rsmq) -> set[str]:
    """Receive and delete; the ids."""
    done = set()
    for _ in range(60):
        for message in client.receive_messages("orders", 3, vt=60):
            assert client.delete_message("orders", message.id, receipt=message.receipt)
            done.add(message.id)
    return done


@pytest.mark.parametrize("overflow", ["refuse", "dead-letter"])
def test_fifty_senders_and_four_receivers_never_exceed_the_bounds(
    connect: Connect, overflow: str
) -> None:
    client = connect()
    client.create_queue("orders")
    client.set_queue_bounds("orders", max_messages=40, max_bytes=300, overflow=overflow)

    with ThreadPoolExecutor(54) as pool:
        running = [pool.submit(_handle, client) for _ in range(4)]
        sent = [each.result() for each in [pool.submit(_send, client, each) for each in range(50)]]
        handled = set().union(*(each.result() for each in running))
    accepted = set().union(*(each for each, _ in sent))
    stored = {each.id for each in client.peek_messages("orders", 1000)}
    dead = (
        {each.id for each in client.peek_messages("orders-dead", 5000)}
        if "orders-dead" in client.list_queues()
        else set()
    )
    assert accepted == stored | handled | dead
    assert len(accepted) == len(stored) + len(handled) + len(dead)
    bounds = client.get_queue_attributes("orders").bounds
    assert bounds.refused >= sum(refused for _, refused in sent)
    assert bounds.overflowed == len(dead)
    assert len(accepted) + sum(refused for _, refused in sent) == 1000
    held = sum(len(each.body) for each in client.peek_messages("orders", 1000))
    assert held <= 300
    assert len(stored) <= 40


def test_tasks_that_send_together_are_refused_one_by_one(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    rsmq.set_queue_bounds("orders", max_messages=30)

    async def send_all() -> list[object]:
        async with AsyncRsmq(server.url) as client:
            sends = [client.send_message("orders", b"x") for _ in range(50)]
            return list(await asyncio.gather(*sends, return_exceptions=True))

    outcomes = asyncio.run(send_all())
    assert sum(isinstance(each, str) for each in outcomes) == 30
    assert sum(isinstance(each, QueueFull) for each in outcomes) == 20
    assert rsmq.get_queue_attributes("orders").msgs == 30
