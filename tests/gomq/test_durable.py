"""Publishes that are done once the disk or a replica has them, over both transports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
import redis

from tambomq.errors import DurabilityUnsupported, InvalidFormat, NotDurable
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.client import GomqClient
from tests.gomq import transports
from tests.gomq.fakes import KINDS, FakeService, connected, serving
from tests.gomq.transports import Broker, Dial, Serve
from tests.servers import Server, eventually
from tests.servers.pair import Pair, running_pair

brokers, transport, broker, serve, dial = transports.fixtures

Connect = Callable[..., GomqClient]
QUEUE = "QUEUE_orders"
ORDER = pb.PublishRecord(key="orders", payload=b"one")


@pytest.fixture(scope="module")
def one_pair() -> Iterator[Pair]:
    """A primary and its replica, for all tests of this module."""
    with running_pair() as pair:
        yield pair


@pytest.fixture
def pair(one_pair: Pair) -> Pair:
    """The pair, with nothing in it."""
    one_pair.ask("FLUSHALL")
    eventually(one_pair.follows, within_s=30)
    return one_pair


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A function from an address and options to a client of the kind in turn."""
    with ExitStack() as stack:

        def open_one(address: str, **options: Any) -> GomqClient:
            return stack.enter_context(connected(request.param, address, **options))

        yield open_one


def stored(server: Server) -> int:
    """How many messages are in the main queue."""
    with redis.Redis.from_url(server.url) as client:
        return int(client.llen(QUEUE))


def waits(pair: Pair) -> int:
    """How many WAIT commands the primary has run."""
    with redis.Redis.from_url(pair.primary.url) as client:
        return int(client.info("commandstats").get("cmdstat_wait", {}).get("calls", 0))


def test_messages_that_the_disk_has_survive_a_crash(
    private_server: Server, serve: Serve, connect: Connect
) -> None:
    client = connect(serve(private_server.url).address, durable="disk")
    client.publish("orders", "one")
    assert client.publish_many([("orders", "two"), ("orders", "three")]) == 2
    private_server.kill()
    private_server.restart()
    assert stored(private_server) == 3


def test_a_publish_that_replicas_do_not_have_in_time_says_what_is_known(
    pair: Pair, serve: Serve, connect: Connect
) -> None:
    client = connect(serve(pair.primary.url, durable_timeout_s=0.2).address)
    with pair.frozen_replica():
        with pytest.raises(NotDurable, match="0 of 1 replicas have it within") as one:
            client.publish("orders", "one", durable="replicas:1")
        with pytest.raises(NotDurable) as more:
            client.publish_many([("orders", "two")] * 5, durable="replicas:1")
    assert (one.value.level, one.value.acknowledged, one.value.wanted) == ("replicas:1", 0, 1)
    assert (one.value.result, more.value.result) == (None, 5)
    assert stored(pair.primary) == 6


def test_a_replica_that_has_the_messages_confirms_them(
    pair: Pair, serve: Serve, connect: Connect, dial: Dial
) -> None:
    broker = serve(pair.primary.url, durable="replicas:1", durable_timeout_s=30)
    client = connect(broker.address, timeout_s=60)
    client.publish("orders", "one", durable="replicas:1")
    client.publish_many([("orders", "two")])
    dial(broker).publish("orders", b"three")
    with redis.Redis.from_url(pair.replica.url) as replica:
        assert replica.llen(QUEUE) == 3


def test_the_level_of_a_client_counts_unless_a_publish_says_otherwise(
    private_server: Server, serve: Serve, connect: Connect
) -> None:
    address = serve(private_server.url, durable_timeout_s=0.05).address
    client = connect(address, durable="replicas:1")
    with pytest.raises(NotDurable):
        client.publish("orders", "one")
    client.publish("orders", "two", durable="memory")
    client.publish("orders", "three", durable="disk")
    assert stored(private_server) == 3


def test_the_level_of_the_server_counts_for_clients_that_know_none(
    pair: Pair, serve: Serve, dial: Dial
) -> None:
    broker = serve(pair.primary.url, durable="replicas:1", durable_timeout_s=0.2)
    foreign = dial(broker)
    with pair.frozen_replica():
        call = foreign.start("Publish", ORDER)
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "stored in memory, but not confirmed with durable='replicas:1'" in call.details()
        assert foreign.start("Publish", ORDER, x_gomq_durable="memory").code().name == "OK"
    foreign.subscribe("orders", "billing")
    assert foreign.observed("billing", 2) == [b"one", b"one"]


def test_the_level_of_a_client_counts_more_than_that_of_the_server(
    private_server: Server, serve: Serve, connect: Connect
) -> None:
    address = serve(private_server.url, durable="replicas:1", durable_timeout_s=0.05).address
    with pytest.raises(NotDurable):
        connect(address).publish("orders", "one")
    connect(address, durable="memory").publish("orders", "two")
    assert stored(private_server) == 2


def test_a_disk_that_is_not_written_is_refused_before_anything_is_stored(
    server: Server, broker: Broker, connect: Connect
) -> None:
    client = connect(broker.address)
    with pytest.raises(DurabilityUnsupported, match="it keeps no append-only file") as refused:
        client.publish("orders", "one", durable="disk")
    with pytest.raises(DurabilityUnsupported):
        client.publish_many([("orders", "two")], durable="disk")
    assert refused.value.level == "disk"
    client.publish("orders", "three")
    assert stored(server) == 1


def test_a_server_does_not_start_with_a_level_that_redis_cannot_confirm(
    server: Server, serve: Serve
) -> None:
    with pytest.raises(Exception, match="cannot confirm durable='disk'"):
        serve(server.url, durable="disk")


def test_unknown_levels_are_refused_before_anything_is_stored(
    server: Server, broker: Broker, dial: Dial, connect: Connect
) -> None:
    with pytest.raises(InvalidFormat, match="durable"):
        connect(broker.address, durable="disc")
    client = connect(broker.address)
    for level in ("replicas", ""):
        with pytest.raises(InvalidFormat, match="durable"):
            client.publish("orders", "one", durable=level)
    call = dial(broker).start("Publish", ORDER, x_gomq_durable="disc")
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert call.details().startswith("durable 'disc' is not valid: memory, disk, or replicas:N")
    assert stored(server) == 0


def test_many_publishes_wait_together(pair: Pair, serve: Serve) -> None:
    address = serve(pair.primary.url, durable_timeout_s=30).address

    async def send() -> None:
        async with AsyncGomqClient(address, timeout_s=60, durable="replicas:1") as client:
            await client.publish("orders", "first")
            before = waits(pair)
            with pair.frozen_replica():
                sends = [
                    asyncio.ensure_future(client.publish("orders", str(number)))
                    for number in range(300)
                ]
                await asyncio.to_thread(eventually, lambda: stored(pair.primary) > 1)
                # Answered after the calls before it have arrived, over the same connection.
                await client.subscribe("others", "anyone")
            await asyncio.gather(*sends)
            # What comes while the first ones wait is stored after them, and waits as one.
            assert waits(pair) - before < 30

    asyncio.run(send())
    assert stored(pair.primary) == 301


def test_a_server_that_knows_no_levels_has_confirmed_nothing(connect: Connect) -> None:
    with serving(service=FakeService()) as served:
        client = connect(served.address)
        with pytest.raises(NotDurable, match="knows no levels of durability") as one:
            client.publish_many([("orders", "one")], durable="disk")
        assert one.value.result == 1
        client.publish("orders", "two", durable="memory")
        client.publish("orders", "three")
