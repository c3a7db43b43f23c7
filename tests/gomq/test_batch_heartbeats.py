"""Whoever handles a batch for longer than a peer may be silent is no silent peer."""

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
from tambomq.gomq.caller import Caller
from tambomq.gomq.holding import Holding
from tambomq.gomq.model import Options
from tests.gomq.conftest import Peer, Serve, publish
from tests.servers import Server, eventually, eventually_async
from tests.store.proxy import Proxy

# One that is silent goes a second later, and a client says three times in it that it is there.
TIMEOUT_S = 1.5


@pytest.fixture
async def broker(server: Server) -> AsyncIterator[GomqServer]:
    """A server that is impatient."""
    options = Options(peer_timeout_s=TIMEOUT_S)
    async with GomqServer(server.url, port=0, options=options) as broker:
        yield broker


@pytest.fixture
async def patient(server: Server) -> AsyncIterator[GomqServer]:
    """A server that waits long enough for a connection to be given up, also on a busy machine."""
    async with GomqServer(server.url, port=0, options=Options(peer_timeout_s=6.0)) as broker:
        yield broker


def address(broker: GomqServer) -> str:
    host, port = broker.address
    return f"{host}:{port}"


async def a_silent_peer_is_gone(broker: GomqServer, db: redis.Redis) -> None:
    """Return when one that came after all others has been silent for too long."""
    async with AsyncGomqClient(address(broker), peer="silent") as silent:
        await silent.subscribe("other", "silent")
        await eventually_async(lambda: not db.exists("PEERS_silent"), within_s=30)


async def test_what_takes_an_async_client_longer_than_a_peer_may_be_silent_comes_once(
    broker: GomqServer, db: redis.Redis
) -> None:
    async with AsyncGomqClient(address(broker), peer="slow") as client:
        await client.subscribe("k", "c")
        await client.publish("k", "one")
        assert [record.text for record in await client.observe("c")] == ["one"]
        await a_silent_peer_is_gone(broker, db)
        assert db.smembers("PEERS_c") == {b"slow"}
        assert await client.observe("c") == []
        assert not db.exists("HANDED_c_slow")


async def test_what_takes_a_client_longer_than_a_peer_may_be_silent_comes_once(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="slow")

    def ask() -> list[str]:
        return [record.text for record in client.observe("c")]

    await asyncio.to_thread(client.subscribe, "k", "c")
    await asyncio.to_thread(client.publish, "k", "one")
    assert await asyncio.to_thread(ask) == ["one"]
    await a_silent_peer_is_gone(broker, db)
    assert db.smembers("PEERS_c") == {b"slow"}
    assert await asyncio.to_thread(ask) == []
    await asyncio.to_thread(client.close)


@pytest.mark.slow
async def test_a_silent_connection_costs_an_async_client_no_batch(
    patient: GomqServer, db: redis.Redis
) -> None:
    with Proxy(patient.address[1]) as proxy:
        async with AsyncGomqClient(f"127.0.0.1:{proxy.port}", peer="slow") as client:
            await client.subscribe("k", "c")
            await client.publish("k", "one")
            assert len(await client.observe("c")) == 1
            proxy.stall()
            await a_silent_peer_is_gone(patient, db)
            assert db.smembers("PEERS_c") == {b"slow"}
            assert db.exists("HANDED_c_slow")
            proxy.hang_up()


@pytest.mark.slow
async def test_a_silent_connection_costs_a_client_no_batch(
    patient: GomqServer, db: redis.Redis
) -> None:
    with Proxy(patient.address[1]) as proxy:
        client = GomqClient(f"127.0.0.1:{proxy.port}", peer="slow", patience_s=20)
        await asyncio.to_thread(client.subscribe, "k", "c")
        await asyncio.to_thread(client.publish, "k", "one")
        assert len(await asyncio.to_thread(client.observe, "c")) == 1
        proxy.stall()
        await a_silent_peer_is_gone(patient, db)
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


async def test_a_client_that_nobody_has_any_more_is_silent(
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


async def test_after_an_error_a_client_is_silent_and_what_it_had_comes_again(
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


async def test_what_a_watcher_has_not_read_to_its_end_goes_back_when_it_leaves(
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


async def test_what_an_async_watcher_has_not_read_to_its_end_goes_back_when_it_leaves(
    broker: GomqServer, db: redis.Redis
) -> None:
    async with AsyncGomqClient(address(broker), peer="left") as client:
        await client.subscribe("k", "c")
        await client.publish_many([("k", "one"), ("k", "two")])
        async with aclosing(client.watch("c")) as records:  # type: ignore[type-var]
            assert (await anext(records)).text == "one"
        await eventually_async(lambda: db.llen("QUEUE_k") == 2, within_s=30)
        assert not db.exists("PEERS_c")


async def test_nobody_says_anything_when_nothing_is_handled(
    broker: GomqServer, db: redis.Redis
) -> None:
    client = GomqClient(address(broker), peer="idle")
    await asyncio.to_thread(client.subscribe, "k", "c")
    await asyncio.to_thread(client.publish, "k", "one")
    assert len(await asyncio.to_thread(client.observe, "c")) == 1
    assert await asyncio.to_thread(client.observe, "c") == []
    eventually(lambda: not _keepers(), within_s=20)
    await eventually_async(lambda: not db.exists("PEERS_c"), within_s=30)
    await asyncio.to_thread(client.close)


def _keepers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "gomq-keeper"]


async def test_to_say_that_one_is_there_neither_acknowledges_nor_takes(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve()
    peer = Peer(service, "p")
    await peer.subscribe("k")
    await publish(service, "k", b"1")
    assert await peer.observe_kept("") == [b"1"]
    await publish(service, "k", b"2")
    db.set("LASTACTION_p", 1)
    said = await service.observe(peer.identity, Caller("p", None, 0))
    assert not said.records
    assert int(db.get("LASTACTION_p") or 0) > 1
    assert await peer.observe_kept("") == [b"1"]


# ── when it is said ──────────────────────────────────────────────────────────


def test_it_is_said_three_times_in_the_time_the_server_allows() -> None:
    held = Holding()
    assert held.pause_s(100) is None
    assert held.heard("c", "b1", 30.0, 100)
    assert (held.pause_s(100), held.due(109)) == (10, [])
    assert held.due(110) == ["c"]
    assert (held.due(110), held.pause_s(110)) == ([], 10)


def test_a_server_that_does_not_say_how_long_it_waits_waits_as_long_as_ever() -> None:
    held = Holding()
    held.heard("c", "b1", None, 0)
    assert held.pause_s(0) == 10


def test_what_was_acknowledged_is_not_spoken_of() -> None:
    held = Holding()
    held.heard("c", "b1", 3, 0)
    held.heard("d", "b2", 30, 0)
    assert not held.heard("c", "", 3, 0.5)
    assert (held.due(5), held.pause_s(5)) == ([], 5)
    held.clear()
    assert held.pause_s(5) is None


@pytest.mark.parametrize(("timeout_s", "patience_s"), [(30, 2), (6, 1), (3, 0.5), (0.3, 0.5)])
def test_an_answer_is_waited_for_half_the_time_to_the_next_word(
    timeout_s: float, patience_s: float
) -> None:
    held = Holding()
    held.heard("c", "b1", timeout_s, 0)
    assert held.patience_s("c") == patience_s
