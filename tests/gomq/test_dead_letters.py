"""Bounds of a main queue in bytes and in time: what is beyond is refused or a dead letter."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import pytest
import redis

from tambomq.errors import InvalidValue, LimitReached, StoreError
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys, wire
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import eventually_async

MAX_BYTES = 10_000


def stored(db: redis.Redis, key: str) -> list[bytes]:
    found = cast("list[bytes]", db.lrange(keys.queue(key), 0, -1))
    return [wire.decode(each).payload for each in found]


def test_bounds_are_off_by_default_and_checked() -> None:
    options = Options()
    assert (options.max_backlog_bytes, options.message_ttl_s) == (0, 0)
    assert options.overflow == "refuse"
    for wrong in ({"max_backlog_bytes": -1}, {"message_ttl_s": -1.0}, {"overflow": "trim"}):
        with pytest.raises(InvalidValue):
            Options(**wrong)


async def test_a_key_is_refused_when_its_queue_takes_too_much_memory(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve(max_backlog_bytes=MAX_BYTES)
    with pytest.raises(LimitReached, match=f"key 'k' has {MAX_BYTES} bytes"):
        await publish(service, "k", *[b"x" * 500] * 100)
    assert 10 < db.llen(keys.queue("k")) < 20
    assert cast("int", db.memory_usage(keys.queue("k"), samples=0)) <= MAX_BYTES
    await publish(service, "other", b"x" * 500)
    records = [pb.PublishRecord(key=key, payload=b"x" * 500) for key in ("other", "k")]
    with pytest.raises(LimitReached):
        await service.publish_many(pb.PublishRecords(records=records), Caller("1.2.3.4:5"))
    assert db.llen(keys.queue("other")) == 1
    peer = Peer(service)
    await peer.subscribe("k")
    await eventually_async(lambda: not db.llen(keys.queue("k")))
    await eventually_has_room(service)


@pytest.mark.parametrize("bound", [{"max_backlog": 5}, {"max_backlog_bytes": 3500}])
async def test_messages_of_a_full_key_become_dead_letters(
    serve: Serve, db: redis.Redis, bound: dict[str, int]
) -> None:
    service = await serve(overflow="dead-letter", **bound)
    sent = [b"%03d" % n * 100 for n in range(8)]
    for payload in sent:
        await publish(service, "k", payload)
    assert stored(db, "k") + stored(db, "k-dead") == sent
    assert stored(db, "k-dead")
    assert service.stats.overflowed == db.llen(keys.queue("k-dead"))
    records = [pb.PublishRecord(key=key, payload=b"many") for key in ("k", "free", "k-dead")]
    await service.publish_many(pb.PublishRecords(records=records), Caller("1.2.3.4:5"))
    assert stored(db, "free") == [b"many"]
    assert stored(db, "k-dead")[-2:] == [b"many", b"many"]
    with pytest.raises(LimitReached, match="key 'k-dead'"):
        await publish(service, "k", *sent, *sent)


async def test_no_concurrent_publish_is_lost_or_stored_twice(serve: Serve, db: redis.Redis) -> None:
    service = await serve(overflow="dead-letter", max_backlog=20)
    sent = {b"%d" % n for n in range(30)}
    await asyncio.gather(*(publish(service, "k", each) for each in sorted(sent)))
    for n in range(30, 40):
        await publish(service, "k", b"%d" % n)
        sent.add(b"%d" % n)
    found = stored(db, "k") + stored(db, "k-dead")
    assert len(found) == len(sent)
    assert set(found) == sent
    assert stored(db, "k-dead")


async def test_the_size_of_a_queue_is_not_read_for_each_publish(
    serve: Serve, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if Redis were slow to answer: what it has said is used for long.
    monkeypatch.setattr("tambomq.gomq.server.backlog_bounds._READ_SHARE", 1e9)
    service = await serve(max_backlog_bytes=MAX_BYTES)
    db.config_resetstat()
    for _ in range(6):
        await publish(service, "k", b"x" * 500)
    stats = cast("dict[str, dict[str, int]]", db.info("commandstats"))
    assert stats["cmdstat_memory|usage"]["calls"] == 1
    with pytest.raises(LimitReached):
        await publish(service, "k", *[b"x" * 500] * 20)
    assert cast("int", db.memory_usage(keys.queue("k"), samples=0)) <= MAX_BYTES
    # Publishers that try again and again do not keep Redis busy with it either.
    monkeypatch.setattr("tambomq.gomq.server.backlog_bounds._REFUSE_S", 1e9)
    await refused(service, 1)
    db.config_resetstat()
    await refused(service, 20)
    assert "cmdstat_memory|usage" not in cast("dict[str, object]", db.info("commandstats"))


async def refused(service: Service, times: int) -> None:
    for _ in range(times):
        with pytest.raises(LimitReached):
            await publish(service, "k", b"x" * 500)


async def test_a_full_key_takes_messages_soon_after_there_is_room(
    serve: Serve, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.gomq.server.backlog_bounds._READ_SHARE", 1e9)
    service = await serve(max_backlog_bytes=MAX_BYTES)
    with pytest.raises(LimitReached):
        await publish(service, "k", *[b"x" * 500] * 100)
    db.delete(keys.queue("k"))
    await eventually_has_room(service)


async def eventually_has_room(service: Service) -> None:
    before = service.stats.published

    async def has_room() -> bool:
        with suppress(LimitReached):
            await publish(service, "k", b"again")
        return service.stats.published > before

    await eventually_async(has_room, within_s=60)


async def test_only_stored_messages_count_as_dead_letters(serve: Serve, db: redis.Redis) -> None:
    service = await serve(max_backlog=2, overflow="dead-letter")
    await publish(service, "k", *[b"x"] * 2)
    db.set(keys.queue("k-dead"), "no list")
    with pytest.raises(StoreError):
        await publish(service, "k", b"beyond")
    records = [pb.PublishRecord(key=key, payload=b"many") for key in ("k", "free")]
    with pytest.raises(StoreError):
        await service.publish_many(pb.PublishRecords(records=records), Caller("1.2.3.4:5"))
    assert service.stats.overflowed == 0


def test_a_dead_letter_has_no_dead_letters_and_a_long_name_none() -> None:
    assert keys.dead_letters("k") == "k-dead"
    assert keys.dead_letters("k-dead") is None
    assert keys.dead_letters("k" * keys.NAME_CHARS) is None


def test_a_service_without_bounds_has_no_overflow_or_expiry(service: Service) -> None:
    assert (service.stats.overflowed, service.stats.expired) == (0, 0)
