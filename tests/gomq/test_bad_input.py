"""Bad input gets a clear error, loses nothing, and delays no other client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from tambomq.errors import InvalidFormat, MessageTooLong, StoreFull, WrongType
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tests.gomq.conftest import Peer, Serve, payloads, publish
from tests.servers import Server, binaries, eventually_async

CALLER = Caller("p")
Ask = Callable[[Service], Awaitable[Any]]


# ── requests ─────────────────────────────────────────────────────────────────

NAMELESS: dict[str, Ask] = {
    "publish": lambda s: s.publish(pb.PublishRecord(payload=b"x"), CALLER),
    "publish_many": lambda s: s.publish_many(
        pb.PublishRecords(records=[pb.PublishRecord(key="k"), pb.PublishRecord()]), CALLER
    ),
    "subscribe": lambda s: s.subscribe(pb.Subscription(consumerID="c"), CALLER),
    "subscribe nobody": lambda s: s.subscribe(pb.Subscription(key="k"), CALLER),
    "unsubscribe": lambda s: s.unsubscribe(pb.Subscription(consumerID="c"), CALLER),
    "unsubscribe nobody": lambda s: s.unsubscribe(pb.Subscription(key="k"), CALLER),
    "observe": lambda s: s.observe(pb.Identification(), CALLER),
}


@pytest.mark.parametrize("call", NAMELESS.values(), ids=list(NAMELESS))
async def test_empty_names_are_refused_and_nothing_is_written(
    service: Service, db: redis.Redis, call: Ask
) -> None:
    with pytest.raises(InvalidFormat, match="it must not be empty"):
        await call(service)
    assert db.dbsize() == 0


async def test_names_beyond_all_measure_are_refused(service: Service, db: redis.Redis) -> None:
    long = "x" * 20_000
    with pytest.raises(InvalidFormat, match="at most"):
        await publish(service, long, b"x")
    with pytest.raises(InvalidFormat, match="at most"):
        await Peer(service, consumer=long).subscribe("k")
    with pytest.raises(InvalidFormat, match="at most"):
        await Peer(service, consumer=long).observe()
    assert db.dbsize() == 0


async def test_a_payload_that_does_not_fit_into_a_reply_is_refused(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_message_bytes=65_536)
    max_bytes = 65_536 - 128 - len(key := "schlüssel") - 1
    with pytest.raises(MessageTooLong, match=str(max_bytes)):
        await publish(service, key, b"x" * (max_bytes + 1))
    many = [pb.PublishRecord(key="k"), pb.PublishRecord(key=key, payload=b"x" * (max_bytes + 1))]
    with pytest.raises(MessageTooLong):
        await service.publish_many(pb.PublishRecords(records=many), CALLER)
    assert db.dbsize() == 0
    peer = Peer(service)
    await peer.subscribe(key)
    await publish(service, key, b"x" * max_bytes)
    found = await service.observe(peer.identity, Caller(peer.name))
    assert payloads(found) == [b"x" * max_bytes]
    assert found.ByteSize() <= 65_536


# ── what stands in Redis ─────────────────────────────────────────────────────

WRONG = [
    "QUEUE_k",
    "CONSUMERS_k",
    "SUBSCRIPTIONS_c",
    "PEERS_c",
    "MESSAGES_k_c_p",
    "LASTACTION_p",
    "SUBSCRIBED_KEYS",
    "TALLY_k",
    "HANDED_c_p",
]


def damage(db: redis.Redis, name: str) -> None:
    """Put a value of another type there, whatever it was."""
    db.delete(name)
    if name.startswith(("LASTACTION_", "HANDED_")):
        db.rpush(name, "no string")
    else:
        db.set(name, "of another type")


async def attempt(work: Awaitable[Any]) -> None:
    """Pass if the call works or finds a value of another type; nothing else."""
    try:
        await work
    except WrongType:
        return


@pytest.mark.parametrize("name", WRONG)
async def test_a_value_of_another_type_is_reported_or_replaced_without_harm_to_others(
    service: Service, db: redis.Redis, name: str
) -> None:
    mine, other = Peer(service, "p"), Peer(service, "q", "d")
    await mine.subscribe("k")
    await other.subscribe("l")
    await publish(service, "k", b"0")
    damage(db, name)
    for n in range(3):
        await attempt(publish(service, "k", b"%d" % n))
        await attempt(mine.observe())
        await attempt(mine.observe_kept(""))
        await attempt(mine.subscribe("k"))
        await attempt(service._reaper.check())
        await attempt(mine.unsubscribe("k"))
        await publish(service, "l", b"%d" % n)
        assert await other.observe() == [b"%d" % n]
    db.delete(name)
    await mine.unsubscribe("k")
    await mine.subscribe("k")
    await other.subscribe("l")
    await mine.observe()
    await publish(service, "k", b"healed")
    assert (await mine.observe())[-1] == b"healed"


@pytest.mark.parametrize(
    "name", ["QUEUE_k", "CONSUMERS_k", "SUBSCRIPTIONS_c", "PEERS_c", "TALLY_k"]
)
async def test_a_failed_unsubscribe_changes_nothing(
    service: Service, db: redis.Redis, name: str
) -> None:
    peer = Peer(service, "p")
    await peer.subscribe("k")
    await publish(service, "k", b"0")
    damage(db, name)
    before = {each: db.dump(each) for each in db.scan_iter()}
    with pytest.raises(WrongType):
        await peer.unsubscribe("k")
    assert {each: db.dump(each) for each in db.scan_iter()} == before


@pytest.mark.parametrize("name", ["CONSUMERS_k", "SUBSCRIPTIONS_c", "PEERS_c", "SUBSCRIBED_KEYS"])
async def test_a_failed_subscribe_changes_nothing(
    service: Service, db: redis.Redis, name: str
) -> None:
    damage(db, name)
    with pytest.raises(WrongType):
        await Peer(service, "p").subscribe("k")
    assert list(db.scan_iter()) == [name.encode()]


INVALID = [b"", b"no batch", b"\xc1", b"\x01", b"\x92\xa1b", b"\x90", b"\x92\x01\x90"]


@pytest.mark.parametrize("batch", INVALID)
async def test_an_invalid_batch_is_ignored(service: Service, db: redis.Redis, batch: bytes) -> None:
    peer = Peer(service, "p")
    for _ in range(2):
        await peer.subscribe("k")
        await publish(service, "k", b"1")
        db.set("HANDED_c_p", batch)
        assert await peer.observe_kept("") == [b"1"]
        db.set("HANDED_c_p", batch)
        assert await peer.observe() == []
        db.set("HANDED_c_p", batch)
        await peer.unsubscribe("k")
        assert not db.exists("HANDED_c_p", "QUEUE_k")


async def test_names_that_are_not_utf_8_do_no_harm(service: Service, db: redis.Redis) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    db.sadd("SUBSCRIBED_KEYS", b"QUEUE_\xff", b"", b"QUEUE_")
    db.sadd("CONSUMERS_k", b"\xff")
    db.sadd("SUBSCRIPTIONS_c", b"\xfe")
    db.sadd("PEERS_c", b"\xfd")
    db.rpush(b"QUEUE_\xff", "1")
    db.rpush(b"MESSAGES_\xfe_c_" + peer.name.encode(), '{"payload":"QQ=="}')
    await publish(service, "k", b"1")
    await service._reaper.check()
    found = (await service.observe(peer.identity, Caller(peer.name))).records
    assert {(each.key, each.value.payload) for each in found} == {("k", b"1"), ("�", b"A")}


# ── a server that is full ────────────────────────────────────────────────────


async def test_a_full_server_refuses_publishes_and_still_delivers(serve: Serve) -> None:
    with (
        Server(binaries.valkey(), "--maxmemory", "100mb") as full,
        redis.Redis.from_url(full.url) as db,
    ):
        service = await serve(full.url)
        one, other = Peer(service, "p"), Peer(service, "q", "d")
        await one.subscribe("k")
        await other.subscribe("k")
        await publish(service, "k", b"1", b"2", b"3")
        db.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            await publish(service, "k", b"4")
        many = pb.PublishRecords(records=[pb.PublishRecord(key="k"), pb.PublishRecord(key="l")])
        with pytest.raises(StoreFull):
            await service.publish_many(many, CALLER)
        await one.subscribe("l")
        assert await one.observe_kept("", limit=1) == [b"1"]
        assert await one.observe_kept(one.batch) == [b"2", b"3"]
        await one.unsubscribe("k", one.batch)
        assert await other.observe() == [b"1", b"2", b"3"]
        db.config_set("maxmemory", "100mb")
        await publish(service, "k", b"5")
        assert await eventually_async(other.observe) == [b"5"]
        assert not db.exists("QUEUE_k", "QUEUE_l")
        await service.stop()
