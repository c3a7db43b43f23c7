"""Messages that waited too long in a main queue are moved to the key of its dead letters."""

from __future__ import annotations

from typing import cast

import redis

from tambomq.gomq import keys, wire
from tambomq.gomq.ops import bounds as bounds_ops
from tambomq.ids import Xids
from tambomq.journal import JournalReader
from tambomq.journal.keys import JournalKeys
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import Server, eventually_async


def stored(db: redis.Redis, key: str) -> list[bytes]:
    found = cast("list[bytes]", db.lrange(keys.queue(key), 0, -1))
    return [wire.decode(each).payload for each in found]


def put(db: redis.Redis, key: str, payload: bytes, *, age_s: int) -> None:
    """Store a message as it was published *age_s* ago."""
    at = db.time()[0] - age_s
    db.rpush(keys.queue(key), wire.encode(Xids().next(at), "", payload))


async def test_expired_messages_move_to_the_key_of_dead_letters(
    serve: Serve, db: redis.Redis
) -> None:
    for n in range(1200):
        put(db, "k", b"old %d" % n, age_s=100)
    put(db, "k", b"new", age_s=0)
    put(db, "k-dead", b"older", age_s=1000)
    put(db, "other-dead", b"a dead letter", age_s=1000)
    service = await serve(message_ttl_s=60.0)
    await eventually_async(lambda: service.stats.expired == 1200)
    assert stored(db, "k") == [b"new"]
    assert stored(db, "k-dead") == [b"older", *(b"old %d" % n for n in range(1200))]
    assert stored(db, "other-dead") == [b"a dead letter"]
    assert not db.exists(keys.queue("k-dead-dead"), keys.queue("other-dead-dead"))
    peer = Peer(service)
    await peer.subscribe("k")
    await eventually_async(lambda: not db.llen(keys.queue("k")))
    assert await peer.observe() == [b"new"]


async def test_one_script_moves_few_large_messages(serve: Serve, db: redis.Redis) -> None:
    for _ in range(40):
        put(db, "k", b"x" * 60_000, age_s=100)
    service = await serve()
    (call,) = next(bounds_ops.expire("k", "k-dead", 60.0))
    moved, has_more = await service._store.run(call)
    assert 5 < moved < 20
    assert has_more
    assert moved + await service._store.follow(bounds_ops.expire("k", "k-dead", 60.0)) == 40


async def test_a_message_does_not_expire_early(serve: Serve, db: redis.Redis) -> None:
    service, began, moved = await serve(), -1, 1
    while db.time()[0] != began:
        began = db.time()[0]
        db.delete(keys.queue("k"))
        # Its id has whole seconds: it may be younger than a minute by almost one.
        put(db, "k", b"x", age_s=60)
        moved = await service._store.follow(bounds_ops.expire("k", "k-dead", 60.0))
    assert moved == 0


async def test_a_journal_records_that_expired_messages_have_left(
    serve: Serve, server: Server, db: redis.Redis
) -> None:
    service = await serve(journal=("k",))
    await publish(service, "k", b"one")
    for key in ("k", "plain"):
        put(db, key, b"old", age_s=100)
    db.lpop(keys.queue("k"))
    (old,) = cast("list[bytes]", db.lrange(keys.queue("k"), 0, -1))
    for key in ("k", "plain"):
        assert await service._store.follow(bounds_ops.expire(key, f"{key}-dead", 60.0)) == 1
    with JournalReader(server.url, "gomq", "k", name="test") as journal:
        entries = journal.read()
    assert [each.record.event for each in entries] == ["sent", "moved"]
    assert entries[1].record.id == wire.decode(old).id
    assert not db.exists(JournalKeys("gomq", "plain").state)


async def test_an_element_without_a_publish_time_does_not_expire(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(message_ttl_s=60.0)
    for element in (b"not json", b'{"id":"short"}', b'{"id":"zzzzzzzzzzzzzzzzzzzz"}'):
        db.delete(keys.queue("k"))
        db.rpush(keys.queue("k"), element)
        put(db, "k", b"behind", age_s=100)
        plan = bounds_ops.expire("k", "k-dead", 60.0)
        assert await service._store.follow(plan) == 0
    assert not db.exists(keys.queue("k-dead"))


async def test_a_key_of_another_type_does_not_stop_the_others(
    serve: Serve, db: redis.Redis
) -> None:
    db.set(keys.queue("a-dead"), "no list")
    put(db, "a", b"stays", age_s=100)
    put(db, "b", b"moves", age_s=100)
    service = await serve(message_ttl_s=60.0)
    await eventually_async(lambda: stored(db, "b-dead") == [b"moves"])
    assert stored(db, "a") == [b"stays"]
    await eventually_async(lambda: service.stats.expired == 1)
