"""Calls of GOMQ from publish to observe, without a transport."""

from __future__ import annotations

import asyncio
import re
from typing import cast

import pytest
import redis
import redis.asyncio

from tambomq.errors import SettingsError, StoreUnavailable, TamboError
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import wire
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import Caller
from tambomq.gomq.server.service import Service
from tambomq.store.aio import AsyncStore
from tests.gomq.conftest import Peer, Serve, payloads, publish
from tests.servers import Server, binaries, eventually_async
from tests.store.proxy import Proxy


async def test_published_messages_are_observed_with_key_id_and_date(service: Service) -> None:
    peer = Peer(service)
    await peer.subscribe("FOO")
    await publish(service, "FOO", b"\xffHello", b"")
    found = await service.observe(peer.identity, Caller(peer.name))
    one, two = found.records
    assert (one.key, one.value.payload, two.value.payload) == ("FOO", b"\xffHello", b"")
    assert re.fullmatch("[0-9a-v]{20}", one.value.id)
    assert one.value.id < two.value.id
    date = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ \d{4}"
    assert re.fullmatch(date, one.value.timestamp)


async def test_a_publish_without_a_subscriber_is_kept_for_the_first(service: Service) -> None:
    await publish(service, "k", b"1", b"2")
    peer = Peer(service)
    await peer.subscribe("k")
    assert await peer.observe() == [b"1", b"2"]


async def test_a_publish_after_the_last_unsubscribe_is_kept(
    service: Service, db: redis.Redis
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await peer.unsubscribe("k")
    await publish(service, "k", b"1")
    assert await peer.observe() == []
    assert db.llen("QUEUE_k") == 1
    await peer.subscribe("k")
    assert await peer.observe() == [b"1"]


async def test_all_peers_of_all_consumers_get_a_copy(service: Service) -> None:
    peers = [Peer(service, name, consumer) for name in ("p", "q") for consumer in ("c", "d")]
    for peer in peers:
        await peer.subscribe("k")
    await publish(service, "k", b"1", b"2")
    assert [await peer.observe() for peer in peers] == [[b"1", b"2"]] * 4
    assert service.stats.published == 2
    assert service.stats.copies == service.stats.observed == 8


async def test_a_peer_that_only_observes_gets_what_waited_for_the_first(service: Service) -> None:
    one, other = Peer(service, "p"), Peer(service, "q")
    await one.subscribe("k")
    await one.observe()
    await publish(service, "k", b"1")
    assert await other.observe() == []
    await publish(service, "k", b"2")
    assert await other.observe() == [b"2"]


async def test_a_consumer_whose_peers_left_gets_its_backlog_by_observing(
    service: Service, db: redis.Redis
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    db.delete("PEERS_c")
    await publish(service, "k", b"1")
    assert db.llen("QUEUE_k") == 1
    assert await peer.observe() == [b"1"]


async def test_all_records_are_published_or_none(service: Service, db: redis.Redis) -> None:
    peer = Peer(service)
    await peer.subscribe("a")
    await peer.subscribe("b")
    many = [pb.PublishRecord(key=key, payload=b"%d" % n) for n in range(3) for key in "ab"]
    assert (await service.publish_many(pb.PublishRecords(records=many), Caller("p"))).code == 0
    assert sorted(await peer.observe()) == [b"0", b"0", b"1", b"1", b"2", b"2"]
    assert (await service.publish_many(pb.PublishRecords(), Caller("p"))).code == 0
    assert service.stats.published == 6


async def test_a_batch_is_handed_out_until_it_is_acknowledged(
    service: Service, db: redis.Redis
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1", b"2")
    assert await peer.observe_kept("", limit=1) == [b"1"]
    first = peer.batch
    assert await peer.observe_kept("") == [b"1"]
    assert peer.batch == first
    assert await peer.observe_kept(first) == [b"2"]
    assert peer.batch != first
    assert await peer.observe_kept(peer.batch, limit=0) == []
    assert not db.exists(f"HANDED_c_{peer.name}")


async def test_a_batch_that_is_acknowledged_in_unsubscribing_does_not_go_back(
    service: Service, db: redis.Redis
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1", b"2")
    await peer.observe_kept("", limit=1)
    await peer.unsubscribe("k", peer.batch)
    assert db.llen("QUEUE_k") == 1


async def test_an_observation_that_is_cancelled_loses_nothing(server: Server) -> None:
    with Proxy(server.port) as proxy:
        store = AsyncStore(proxy.url)
        service, elsewhere = Service(store), Service(AsyncStore(server.url))
        peer = Peer(service)
        await peer.subscribe("k")
        await publish(service, "k", b"1", b"2")
        observing = asyncio.create_task(peer.observe())
        # Wherever it is cut off, what was popped is given back.
        for _ in range(3):
            await asyncio.sleep(0)
        observing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await observing
        await service.stop()
        peer.service = elsewhere
        assert await peer.observe() == [b"1", b"2"]
        await store.close()
        await elsewhere._store.close()


async def test_two_services_on_one_redis_dispatch_each_message_once(serve: Serve) -> None:
    services = [await serve(), await serve()]
    peers = [Peer(service, f"p{n}", f"c{n % 2}") for n, service in enumerate(services * 2)]
    for peer in peers:
        await peer.subscribe("k")
    bodies = [b"%d" % n for n in range(400)]
    await asyncio.gather(
        *(publish(services[n % 2], "k", *bodies[n::8]) for n in range(8)),
    )
    got = {peer.name: [] for peer in peers}  # type: dict[str, list[bytes]]

    async def all_are_there() -> bool:
        for peer in peers:
            got[peer.name] += await peer.observe()
        return all(len(found) >= len(bodies) for found in got.values())

    await eventually_async(all_are_there, within_s=20)
    assert all(sorted(found) == sorted(bodies) for found in got.values())
    # What one publishes one after the other stays in order, for everybody.
    for found in got.values():
        for n in range(8):
            assert [body for body in found if body in bodies[n::8]] == bodies[n::8]


async def test_a_cluster_is_refused() -> None:
    with Server(binaries.valkey(), "--cluster-enabled", "yes") as node:
        store = AsyncStore(node.url)
        try:
            with pytest.raises(SettingsError, match="cannot use a Redis Cluster"):
                await Service(store).start()
        finally:
            await store.close()


async def test_foreign_keys_in_the_database_are_kept(serve: Serve, db: redis.Redis) -> None:
    theirs = {"their": "value", "QUEUEs": "7", "rsmq:QUEUES": "x"}
    db.mset(theirs)
    db.rpush("QUEUE_old", "from another day")
    service = await serve()
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    assert await peer.observe() == [b"1"]
    await peer.unsubscribe("k")
    await service.stop()
    assert db.mget(list(theirs)) == [value.encode() for value in theirs.values()]
    assert db.lrange("QUEUE_old", 0, -1) == [b"from another day"]


async def test_a_service_may_be_started_again(serve: Serve, db: redis.Redis) -> None:
    service = await serve()
    await service.stop()
    await service.start()
    peer = Peer(service)
    await peer.subscribe("k")
    db.rpush("QUEUE_k", "{}")
    assert await eventually_async(peer.observe) == [b""]


async def test_without_redis_every_call_says_so(serve: Serve, private_server: Server) -> None:
    service = await serve(private_server.url, patience_s=0.1)
    peer = Peer(service)
    await peer.subscribe("k")
    await service.ping()
    private_server.kill()
    for call in (service.ping(), peer.subscribe("k"), peer.observe(), publish(service, "k", b"1")):
        with pytest.raises(StoreUnavailable):
            await call
    private_server.restart()
    await eventually_async(lambda: _answers(service))
    await publish(service, "k", b"2")
    assert await peer.observe() == [b"2"]


async def _answers(service: Service) -> bool:
    try:
        await service.ping()
    except StoreUnavailable:
        return False
    return True


async def test_a_restart_of_redis_in_between_loses_nothing_that_was_confirmed(
    serve: Serve, private_server: Server
) -> None:
    service = await serve(private_server.url)
    peer = Peer(service)
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    private_server.kill()
    private_server.restart()
    with redis.Redis.from_url(private_server.url) as db:
        assert cast("int", db.llen(f"MESSAGES_k_c_{peer.name}")) == 1
    await publish(service, "k", b"2")
    found: list[bytes] = []

    async def both() -> bool:
        found.extend(await peer.observe())
        return len(found) >= 2

    await eventually_async(both)
    assert found == [b"1", b"2"]


async def test_a_record_is_empty_where_the_list_holds_no_such_json(
    service: Service, db: redis.Redis
) -> None:
    peer = Peer(service)
    await peer.subscribe("k")
    db.rpush("QUEUE_k", b"no json", b'{"id":"\xff"}', b'{"id":"x","payload":"QQ=="}', b'{"id":3}')
    found: list[pb.Record] = []

    async def all_four() -> bool:
        found.extend((await service.observe(peer.identity, Caller(peer.name))).records)
        return len(found) >= 4

    await eventually_async(all_four)
    values = [(each.key, each.value.id, each.value.payload) for each in found]
    assert values == [("k", "", b""), ("k", "", b""), ("k", "x", b"A"), ("k", "", b"")]
    assert payloads(pb.RecordSet(records=found)) == [b"", b"", b"A", b""]


async def test_errors_that_are_not_of_redis_end_no_publish_and_no_background_work(
    server: Server, db: redis.Redis
) -> None:
    class Tokens:
        fails = False

        def __call__(self) -> tuple[str, str]:
            if self.fails:
                raise RuntimeError("no token today")
            return "", ""

    tokens = Tokens()
    with Proxy(server.port) as proxy:
        store = AsyncStore(proxy.url, credentials=tokens, patience_s=0)
        service = Service(store, Options(peer_timeout_s=1))
        await service.start()
        try:
            peer = Peer(service)
            await peer.subscribe("k")
            tokens.fails = True
            proxy.hang_up()
            # The first may still use the connection that has ended, and be unknown.
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(publish_on(service), 60)
            tokens.fails = False
            # The reaper goes on, and so does what dispatches messages of others.
            await eventually_async(lambda: not db.exists("PEERS_c"), within_s=20)
            assert await peer.observe() == []
            await eventually_async(lambda: db.llen("MESSAGES_k_c_" + peer.name) == pushed(db))
            assert await peer.observe() == [b"of another"]
        finally:
            await service.stop()
            await store.close()


async def publish_on(service: Service) -> None:
    while True:
        await publish(service, "other", b"x")


def pushed(db: redis.Redis) -> int:
    """Push a message as others do, once; return how many there are."""
    if not db.exists("pushed"):
        db.set("pushed", 1)
        db.rpush("QUEUE_k", wire.encode("a" * 20, "today", b"of another"))
    return 1


async def test_a_publish_that_fails_unexpectedly_ends_with_the_error(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> dict[str, TamboError]:
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(service._bounds, "refused", broken)
    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="nobody expected this"):
            await publish(service, "k", b"1")
