"""Damaged queues: detected, reported, and no obstacle to other messages."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.errors import QueueCorrupt, QueueNotFound, WrongType
from tambomq.rsmq import Rsmq
from tests.rsmq.conftest import Connect
from tests.rsmq.operations import BY_QUEUE, ID
from tests.rsmq.stored import at_rest
from tests.servers import Server

MESSAGES, DATA, QUEUES = "rsmq:q", "rsmq:q:Q", "rsmq:QUEUES"

# Operations by the key they use; all operations on one queue use its hash.
TOUCHES_QUEUES = ["create_queue", "delete_queue"]
TOUCHES_DATA = [name for name in BY_QUEUE if name != "send no messages"]
TOUCHES_MESSAGES = [name for name in TOUCHES_DATA if not name.startswith(("create", "set_"))]


def ids_without_body(count: int, score: float = 1) -> dict[str, float]:
    """Ids as members of a zset, without bodies."""
    return {f"{n:032}": score for n in range(count)}


# ── keys of another type ─────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", TOUCHES_MESSAGES)
def test_a_messages_key_of_another_type_is_an_error_before_anything_is_written(
    client: Rsmq, db: redis.Redis, operation: str
) -> None:
    client.create_queue("q")
    db.set(MESSAGES, "foreign")
    before = at_rest(db)
    with pytest.raises(WrongType, match="rsmq:q"):
        BY_QUEUE[operation](client, "q")
    assert at_rest(db) == before


@pytest.mark.parametrize("operation", TOUCHES_DATA)
def test_a_data_key_of_another_type_is_an_error_before_anything_is_written(
    client: Rsmq, db: redis.Redis, operation: str
) -> None:
    client.create_queue("other")
    db.sadd(QUEUES, "q")
    db.rpush(DATA, "foreign")
    db.zadd(MESSAGES, {ID: 1})
    before = at_rest(db)
    with pytest.raises(WrongType, match="rsmq:q:Q"):
        BY_QUEUE[operation](client, "q")
    assert at_rest(db) == before


@pytest.mark.parametrize("operation", TOUCHES_QUEUES)
def test_a_queues_key_of_another_type_is_an_error_before_anything_is_written(
    client: Rsmq, db: redis.Redis, operation: str
) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    db.delete(QUEUES)
    db.hset(QUEUES, "q", "foreign")
    before = at_rest(db)
    with pytest.raises(WrongType, match="rsmq:QUEUES"):
        BY_QUEUE[operation](client, "new" if operation == "create_queue" else "q")
    with pytest.raises(WrongType):
        client.list_queues()
    assert at_rest(db) == before


def test_a_queue_works_without_being_listed(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.set(QUEUES, "foreign")
    client.send_message("q", "x")
    assert client.pop_message("q") is not None


# ── members without a body, bodies without a member ──────────────────────────


@pytest.mark.parametrize("vt", [None, 0, 100])
@pytest.mark.parametrize("count", [1, 10, 1000, 3500])
def test_receivers_skip_ids_without_a_body(
    client: Rsmq, db: redis.Redis, count: int, vt: float | None
) -> None:
    client.create_queue("q")
    db.zadd(MESSAGES, ids_without_body(count))
    assert client.receive_messages("q", 3, vt=vt) == []
    client.send_messages("q", ["a", "b"])
    db.zadd(MESSAGES, ids_without_body(count))
    assert [m.text for m in client.receive_messages("q", 1, vt=100)] == ["a"]
    db.zadd(MESSAGES, ids_without_body(count))
    popped = client.pop_message("q")
    assert popped is not None
    assert popped.text == "b"
    db.zadd(MESSAGES, ids_without_body(count))
    assert client.pop_message("q") is None
    stats = client.get_queue_stats("q")
    assert (stats.members_without_body, stats.visible, stats.in_flight) == (count, 0, 1)
    assert client.get_queue_attributes("q").totalrecv == 2


def test_ids_without_a_body_between_messages_lose_no_message(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    ids = client.send_messages("q", [str(n) for n in range(100)])
    db.hdel(DATA, *ids[::2])
    received: list[str] = []
    while batch := client.receive_messages("q", 10):
        received += [m.text for m in batch]
    assert received == [str(n) for n in range(1, 100, 2)]
    assert client.get_queue_stats("q").members_without_body == 50


def test_an_id_without_a_body_can_be_deleted(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.zadd(MESSAGES, {ID: 1})
    assert client.peek_messages("q") == []
    assert client.delete_message("q", ID) is True
    assert client.get_queue_stats("q").members_without_body == 0


def test_stats_count_damaged_entries_separately(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_messages("q", ["flight", "seen", "seen"])
    client.send_message("q", "later", delay=1000)
    client.receive_message("q")
    db.zadd(MESSAGES, ids_without_body(2, score=99e12))
    db.hset(DATA, mapping={"B" * 32: "no member", "C" * 32: "nor this"})
    db.hset(DATA, mapping={"D" * 32 + ":rc": 1, "D" * 32 + ":fr": 1, "D" * 32 + ":why": "?"})
    stats = client.get_queue_stats("q")
    assert (stats.queue, stats.visible, stats.in_flight, stats.delayed) == ("q", 2, 1, 1)
    assert (stats.members_without_body, stats.bodies_without_member) == (2, 2)
    assert stats.stray_fields == 3
    assert stats.body_bytes == len("flightseenseenlater")
    assert stats.oldest_visible_ms >= 0
    assert stats.attributes.totalsent == 4


def test_a_large_queue_is_counted_page_by_page(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    client.send_messages("q", ["x"] * 5000)
    client.receive_messages("q", 2000)
    db.zadd(MESSAGES, ids_without_body(1500))
    stats = client.get_queue_stats("q")
    assert (stats.visible, stats.in_flight, stats.members_without_body) == (3000, 2000, 1500)
    assert (stats.bodies_without_member, stats.stray_fields) == (0, 0)


def test_all_servers_count_damage_alike(connect_to: Connect, each_server: Server) -> None:
    client = connect_to(each_server.url)
    client.create_queue("q")
    client.send_messages("q", ["x" * 1000] * 2500)
    with redis.Redis.from_url(each_server.url) as db:
        db.zadd(MESSAGES, ids_without_body(20))
        db.hset(DATA, mapping={f"{n:A>32}": "no member" for n in range(30)})
        db.hset(DATA, mapping={f"{n:B>32}:rc": 1 for n in range(40)})
    stats = client.get_queue_stats("q")
    assert (stats.visible, stats.members_without_body) == (2500, 20)
    assert (stats.bodies_without_member, stats.stray_fields) == (30, 40)


def test_a_purge_repairs_a_damaged_queue(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.zadd(MESSAGES, ids_without_body(5))
    db.hset(DATA, mapping={"B" * 32: "no member", "D" * 32 + ":rc": 1})
    assert client.purge_queue("q") == 5
    stats = client.get_queue_stats("q")
    assert stats.members_without_body + stats.bodies_without_member + stats.stray_fields == 0


# ── bytes that are not UTF-8 ─────────────────────────────────────────────────


def test_a_queue_name_that_is_not_utf_8_is_listed_escaped(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.sadd(QUEUES, b"\xff\xfe", "a b")
    assert client.list_queues() == ["\\xff\\xfe", "a b", "q"]


@pytest.mark.parametrize("id", [b"\xff\xfe" * 16, b"short", b"", b"x" * 100, b"a b\n\0"])
def test_an_id_of_another_form_blocks_no_receiver(client: Rsmq, db: redis.Redis, id: bytes) -> None:
    client.create_queue("q")
    db.zadd(MESSAGES, {id: 1})
    db.hset(DATA, id, "foreign")
    client.send_message("q", "ours")
    assert [m.text for m in client.peek_messages("q")] == ["foreign", "ours"]
    received = client.receive_messages("q", 10, vt=0)
    assert [m.text for m in received] == ["foreign", "ours"]
    assert [m.sent >= 0 for m in received] == [True, True]
    assert client.get_queue_stats("q").visible == 2
    db.zadd(MESSAGES, {id: 1})
    assert [m.text for _ in range(2) if (m := client.pop_message("q"))] == ["foreign", "ours"]


# ── values that are not numbers ──────────────────────────────────────────────


def test_settings_written_as_fractions_are_read(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.hset(DATA, mapping={"vt": "30.0", "delay": "0.0", "maxsize": "65565"})
    found = client.get_queue_attributes("q")
    assert (found.vt, found.delay, found.maxsize) == (30, 0, 65565)
    client.send_message("q", "x" * 65565)
    received = client.receive_message("q")
    assert received is not None
    assert received.visible_at == received.fr + 30_000


@pytest.mark.parametrize("value", ["abc", "", "nan", "inf", "-1", "1e300", "-inf"])
def test_a_setting_out_of_range_is_reported_as_damage(
    client: Rsmq, db: redis.Redis, value: str
) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    db.hset(DATA, mapping={"vt": value, "delay": value})
    before = at_rest(db)
    with pytest.raises(QueueCorrupt, match="vt is"):
        client.receive_message("q")
    with pytest.raises(QueueCorrupt, match="delay is"):
        client.send_message("q", "y")
    assert at_rest(db) == before
    # A value given by the caller does not need the queue's.
    client.send_message("q", "y", delay=0)
    assert len(client.receive_messages("q", 2, vt=10)) == 2
    client.set_queue_attributes("q", vt=30, delay=0)
    client.send_message("q", "z")
    assert client.receive_message("q") is not None


@pytest.mark.parametrize("field", ["delay", "maxsize"])
def test_a_missing_setting_is_reported_as_damage(client: Rsmq, db: redis.Redis, field: str) -> None:
    client.create_queue("q")
    client.send_message("q", "x")
    db.hdel(DATA, field)
    with pytest.raises(QueueCorrupt, match=f"{field} is"):
        client.send_message("q", "y")
    assert client.receive_message("q") is not None
    assert client.get_queue_attributes("q").msgs == 1


def test_a_hash_without_vt_is_not_a_queue(client: Rsmq, db: redis.Redis) -> None:
    client.create_queue("q")
    db.hdel(DATA, "vt")
    for operation in TOUCHES_MESSAGES:
        if operation != "delete_queue":
            with pytest.raises(QueueNotFound):
                BY_QUEUE[operation](client, "q")
    client.create_queue("q")
    client.send_message("q", "x")


@pytest.mark.parametrize("value", ["abc", "1.5", "", "9" * 30, "nan"])
def test_damaged_counters_lose_no_message(client: Rsmq, db: redis.Redis, value: str) -> None:
    client.create_queue("q")
    a, b = client.send_messages("q", "ab")
    damaged: dict[Any, Any] = {"totalsent": value, "totalrecv": value}
    damaged |= {f"{id}:{what}": value for id in (a, b) for what in ("rc", "fr")}
    db.hset(DATA, mapping=damaged)
    assert [m.id for m in client.peek_messages("q")] == [a, b]
    received = client.receive_message("q", vt=100)
    assert received is not None
    assert (received.id, received.rc) == (a, 1)
    assert received.fr > received.sent - 1000
    popped = client.pop_message("q")
    assert popped is not None
    assert popped.id == b
    c = client.send_message("q", "c")
    assert client.delete_messages("q", [received, c]) == [True, True]
    assert db.zcard(MESSAGES) == 0
    assert db.hlen(DATA) == 7


@pytest.mark.parametrize("score", ["-inf", "-5.5", "0", "1.5", "1645020200667.25"])
def test_a_message_with_an_odd_score_is_received(client: Rsmq, db: redis.Redis, score: str) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x", delay=1000)
    db.zadd(MESSAGES, {id: score})
    assert client.peek_messages("q")[0].visible_at <= 1645020200667
    assert client.get_queue_stats("q").oldest_visible_ms > 0
    received = client.receive_message("q")
    assert received is not None
    assert received.id == id


def test_a_message_that_never_becomes_visible_can_be_peeked_at_and_made_visible(
    client: Rsmq, db: redis.Redis
) -> None:
    client.create_queue("q")
    id = client.send_message("q", "x")
    db.zadd(MESSAGES, {id: "inf"})
    assert client.receive_message("q") is None
    assert client.peek_messages("q")[0].visible_at == 2**53
    assert client.get_queue_stats("q").delayed == 1
    assert client.change_message_visibility("q", id, 0) is True
    assert client.receive_message("q") is not None
