"""Heartbeats of a client: a batch may be handled for longer than the peer timeout."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, closing

import pytest
import redis

from tambomq.errors import BrokerUnavailable
from tambomq.gomq import AsyncGomqClient, GomqClient, GomqServer
from tambomq.gomq.batch_heartbeats import BatchHeartbeats
from tambomq.gomq.model import Options
from tambomq.gomq.server.auth import Caller
from tests.gomq.conftest import Peer, Serve, publish
from tests.gomq.server_process import gomq_process
from tests.servers import Server, eventually, eventually_async
from tests.store.proxy import Proxy

# A silent peer is disconnected a second later; clients send three heartbeats in this time.
TIMEOUT_S = 1.5


@pytest.fixture
async def broker(server: Server) -> AsyncIterator[GomqServer]:
    """A server with a short peer timeout."""
    options = Options(peer_timeout_s=TIMEOUT_S)
    async with GomqServer(server.url, port=0, options=options) as broker:
        yield broker


@pytest.fixture
async def patient(server: Server) -> AsyncIterator[GomqServer]:
    """A server whose peer timeout is long enough to detect a dead connection on a busy machine."""
    async with GomqServer(server.url, port=0, options=Options(peer_timeout_s=6.0)) as broker:
        yield broker


def address(broker: GomqServer) -> str:
    host, port = broker.address
    return f"{host}:{port}"


async def a_silent_peer_is_disconnected(broker: GomqServer, db: redis.Redis) -> None:
    """Return when a peer that subscribed last has been disconnected for silence."""
    async with AsyncGomqClient(address(broker), peer="silent") as silent:
        await silent.subscribe("other", "silent")
        await eventually_async(lambda: not db.exists("PEERS_silent"), within_s=30)


async def test_a_batch_handled_longer_by_an_async_client_is_delivered_once(
    broker: GomqServer, db: redis.Redis
) -> None:
    async with AsyncGomqClient(address(broker), peer="slow") as client:
        await client.subscribe("k", "c")
        await client.publish("k", "one")
        assert [record.text for record in await client.observe("c")] == ["one"]
        await a_silent_peer_is_disconnected(broker, db)
        assert db.smembers("PEERS_c") == {b"slow"}
        assert await client.observe("c") == []
        assert not db.exists("HANDED_c_slow")


async def test_a_batch_handled_longer_than_the_peer_timeout_is_delivered_once(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="slow")

    def observe() -> list[str]:
        return [record.text for record in client.observe("c")]

    await asyncio.to_thread(client.subscribe, "k", "c")
    await asyncio.to_thread(client.publish, "k", "one")
    assert await asyncio.to_thread(observe) == ["one"]
    await a_silent_peer_is_disconnected(broker, db)
    assert db.smembers("PEERS_c") == {b"slow"}
    assert await asyncio.to_thread(observe) == []
    await asyncio.to_thread(client.close)


async def test_a_blocked_event_loop_costs_an_async_client_no_batch(
    server: Server, db: redis.Redis
) -> None:
    with gomq_process(server.url, peer_timeout_s=TIMEOUT_S) as process:
        async with AsyncGomqClient(process.address, peer="slow") as client:
            await client.subscribe("k", "c")
            await client.publish("k", "one")
            assert [record.text for record in await client.observe("c")] == ["one"]
            with GomqClient(process.address, peer="silent") as silent:
                silent.subscribe("other", "silent")
                # The loop of the client does nothing else until then.
                eventually(lambda: not db.exists("PEERS_silent"), within_s=30)
            assert db.smembers("PEERS_c") == {b"slow"}
            assert await client.observe("c") == []
            assert not db.exists("HANDED_c_slow")


@pytest.mark.slow
async def test_a_dead_connection_costs_an_async_client_no_batch(
    patient: GomqServer, db: redis.Redis
) -> None:
    with Proxy(patient.address[1]) as proxy:
        async with AsyncGomqClient(f"127.0.0.1:{proxy.port}", peer="slow") as client:
            await client.subscribe("k", "c")
            await client.publish("k", "one")
            assert len(await client.observe("c")) == 1
            proxy.stall()
            await a_silent_peer_is_disconnected(patient, db)
            assert db.smembers("PEERS_c") == {b"slow"}
            assert db.exists("HANDED_c_slow")
            proxy.hang_up()


@pytest.mark.slow
async def test_a_dead_connection_costs_a_client_no_batch(
    patient: GomqServer, db: redis.Redis
) -> None:
    with Proxy(patient.address[1]) as proxy:
        client = GomqClient(f"127.0.0.1:{proxy.port}", peer="slow", patience_s=20)
        await asyncio.to_thread(client.subscribe, "k", "c")
        await asyncio.to_thread(client.publish, "k", "one")
        assert len(await asyncio.to_thread(client.observe, "c")) == 1
        # Until then it has sent heartbeats: their connection goes silent too.
        await a_silent_peer_is_disconnected(patient, db)
        proxy.stall()
        await a_silent_peer_is_disconnected(patient, db)
        assert db.smembers("PEERS_c") == {b"slow"}
        proxy.hang_up()

        def observed_nothing() -> bool:
            try:
                return client.observe("c") == []
            except BrokerUnavailable:  # until gRPC has connected again
                return False

        await eventually_async(lambda: asyncio.to_thread(observed_nothing))
        assert not db.exists("HANDED_c_slow")
        await asyncio.to_thread(client.close)


async def test_a_garbage_collected_client_sends_no_heartbeats(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="forgotten")
    await asyncio.to_thread(client.subscribe, "k", "c")
    await asyncio.to_thread(client.publish, "k", "one")
    assert len(await asyncio.to_thread(client.observe, "c")) == 1
    del client
    gc.collect()
    await eventually_async(lambda: not db.exists("PEERS_c"), within_s=30)
    await eventually_async(lambda: db.llen("QUEUE_k") == 1, within_s=30)


async def test_after_an_error_no_heartbeats_are_sent_and_the_batch_is_delivered_again(
    broker: GomqServer, db: redis.Redis
) -> None:
    async def break_in_between() -> None:
        async with AsyncGomqClient(address(broker), peer="broken") as client:
            await client.subscribe("k", "c")
            await client.publish("k", "one")
            assert len(await client.observe("c")) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_in_between()
    await eventually_async(lambda: db.llen("QUEUE_k") == 1, within_s=30)


async def test_a_batch_that_a_watcher_did_not_finish_is_delivered_again(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="left")

    def watch_for_one() -> str:
        client.subscribe("k", "c")
        client.publish_many([("k", "one"), ("k", "two")])
        with closing(client.watch("c")) as records:  # type: ignore[type-var]
            return next(records).text

    assert await asyncio.to_thread(watch_for_one) == "one"
    await eventually_async(lambda: db.llen("QUEUE_k") == 2, within_s=30)
    assert not db.exists("PEERS_c")
    await asyncio.to_thread(client.close)


async def test_a_batch_that_an_async_watcher_did_not_finish_is_delivered_again(
    broker: GomqServer, db: redis.Redis
) -> None:
    async with AsyncGomqClient(address(broker), peer="left") as client:
        await client.subscribe("k", "c")
        await client.publish_many([("k", "one"), ("k", "two")])
        async with aclosing(client.watch("c")) as records:  # type: ignore[type-var]
            assert (await anext(records)).text == "one"
        await eventually_async(lambda: db.llen("QUEUE_k") == 2, within_s=30)
        assert not db.exists("PEERS_c")


async def test_no_heartbeats_are_sent_when_no_batch_is_handled(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="idle")
    await asyncio.to_thread(client.subscribe, "k", "c")
    await asyncio.to_thread(client.publish, "k", "one")
    assert len(await asyncio.to_thread(client.observe, "c")) == 1
    assert await asyncio.to_thread(client.observe, "c") == []
    eventually(lambda: not _heartbeat_threads(), within_s=20)
    await eventually_async(lambda: not db.exists("PEERS_c"), within_s=30)
    await asyncio.to_thread(client.close)


def _heartbeat_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "gomq-heartbeat"]


async def test_a_heartbeat_neither_acknowledges_nor_fetches(serve: Serve, db: redis.Redis) -> None:
    service = await serve()
    peer = Peer(service, "p")
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    assert await peer.observe_kept("") == [b"1"]
    await publish(service, "k", b"2")
    db.set("LASTACTION_p", 1)
    reply = await service.observe(peer.identity, Caller("p", None, 0))
    assert not reply.records
    assert int(db.get("LASTACTION_p") or 0) > 1
    assert await peer.observe_kept("") == [b"1"]


# ── the schedule ─────────────────────────────────────────────────────────────


def test_three_heartbeats_are_sent_within_the_peer_timeout() -> None:
    heartbeats = BatchHeartbeats()
    assert heartbeats.next_in_s(100) is None
    assert heartbeats.observed("c", "b1", 30.0, 100)
    assert (heartbeats.next_in_s(100), heartbeats.due(109)) == (10, [])
    assert heartbeats.due(110) == ["c"]
    assert (heartbeats.due(110), heartbeats.next_in_s(110)) == ([], 10)


def test_the_default_peer_timeout_is_assumed_if_the_server_names_none() -> None:
    heartbeats = BatchHeartbeats()
    heartbeats.observed("c", "b1", None, 0)
    assert heartbeats.next_in_s(0) == 10


def test_an_acknowledged_batch_gets_no_heartbeats() -> None:
    heartbeats = BatchHeartbeats()
    heartbeats.observed("c", "b1", 3, 0)
    heartbeats.observed("d", "b2", 30, 0)
    assert not heartbeats.observed("c", "", 3, 0.5)
    assert (heartbeats.due(5), heartbeats.next_in_s(5)) == ([], 5)
    heartbeats.clear()
    assert heartbeats.next_in_s(5) is None


@pytest.mark.parametrize(("timeout_s", "reply_timeout_s"), [(30, 2), (6, 1), (3, 0.5), (0.3, 0.5)])
def test_the_reply_timeout_is_half_the_interval(timeout_s: float, reply_timeout_s: float) -> None:
    heartbeats = BatchHeartbeats()
    heartbeats.observed("c", "b1", timeout_s, 0)
    assert heartbeats.reply_timeout_s("c") == reply_timeout_s


def test_a_batch_that_is_acknowledged_while_its_heartbeat_is_due_has_no_other() -> None:
    schedule = BatchHeartbeats()

    class Late(float):
        """A time at which another thread acknowledges the batch."""

        def __add__(self, other: float) -> float:
            schedule.observed("c", "", None, float(self))
            return float(self) + other

    schedule.observed("c", "batch", 3.0, 0.0)
    schedule.due(Late(10.0))
    assert schedule.next_in_s(10.0) is None
