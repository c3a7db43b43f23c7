"""Statuses of abandoned calls, and with Redis stopped or unreachable, over both transports."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tambomq.gomq import gomq_pb2 as pb
from tests.gomq import transports
from tests.gomq.transports import KINDS, WITHIN_S, Broker, Brokers, Client, Dial, Serve, payloads
from tests.servers import Server, eventually

brokers, transport, broker, serve, dial = transports.fixtures

Status = grpc.StatusCode
CONSUMER = pb.Identification(consumerID="BAR")
ONE = pb.PublishRecord(key="FOO", payload=b"one")
ME: dict[str, Any] = {"x_gomq_peer": "me"}
ENDS = {Status.OK, Status.DEADLINE_EXCEEDED}
# Brokers look once a second whether their clients are still there.
NOTICED_S = 3.0


@pytest.fixture
def client(broker: Broker, dial: Dial) -> Client:
    """One client of the broker."""
    return dial(broker)


@contextmanager
def standing_still(server: Server) -> Iterator[None]:
    """Freeze the server (SIGSTOP); what is sent to it waits."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_messages_popped_for_a_cancelled_call_wait_for_their_peer_again(
    serve: Serve, dial: Dial, private_server: Server
) -> None:
    broker = serve(private_server.url)
    hasty, fickle, other = dial(broker), dial(broker), dial(broker)
    hasty.subscribe("FOO", "hasty")
    fickle.subscribe("FOO", "fickle")
    other.publish("FOO", b"1", b"2")
    with standing_still(private_server):
        late = hasty.start("Observe", pb.Identification(consumerID="hasty"), within_s=0.3)
        off = fickle.start("Observe", pb.Identification(consumerID="fickle"))
        assert late.code() is Status.DEADLINE_EXCEEDED
        off.cancel()
        assert off.code() is Status.CANCELLED
        unheard = pb.PublishRecord(key="elsewhere", payload=b"")
        assert other.status("Publish", unheard, within_s=NOTICED_S) is Status.DEADLINE_EXCEEDED
    for client, consumer in ((hasty, "hasty"), (fickle, "fickle")):
        assert client.observed(consumer, 2) == [b"1", b"2"]
        assert client.observe(consumer) == []


def test_a_publish_whose_time_is_over_happens_once_or_not_at_all(
    client: Client, db: redis.Redis
) -> None:
    client.publish("FOO", b"connected")
    ends: dict[bytes, grpc.StatusCode] = {}
    for number in range(200):
        record = pb.PublishRecord(key="FOO", payload=b"%d" % number)
        ends[record.payload] = client.status("Publish", record, within_s=0.00002 * number)
    assert set(ends.values()) <= ENDS
    client.subscribe("FOO", "BAR")
    found: list[bytes] = []
    while some := client.observe("BAR"):
        found += some
    assert found[0] == b"connected"
    assert len(found) == len(set(found))
    assert {body for body, end in ends.items() if end is Status.OK} <= set(found)


def test_with_acknowledgements_deadlines_may_be_too_short_and_nothing_is_lost(
    client: Client,
) -> None:
    wanted = [b"%d" % n for n in range(300)]
    client.subscribe("FOO", "BAR", **ME)
    records = [pb.PublishRecord(key="FOO", payload=body) for body in wanted]
    client.start("PublishMany", pb.PublishRecords(records=records)).result()
    found: list[bytes] = []
    batch, within_s = "", 0.0001
    while len(found) < len(wanted):
        call = client.start("Observe", CONSUMER, within_s=within_s, **ME, x_gomq_ack=batch)
        assert call.code() in ENDS
        if call.code() is Status.OK:
            found += payloads(call.result())
            batch = dict(call.initial_metadata())["x-gomq-batch"]
            within_s = 0.0001
        within_s *= 1.3
    assert found == wanted


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_watcher_that_gave_up_misses_nothing_that_comes_later(
    how: str, client: Client, broker: Broker, dial: Dial
) -> None:
    client.subscribe("FOO", "BAR", **ME)
    if how == "deadline":
        assert client.watch("BAR", within_s=0.3, **ME).code() is Status.DEADLINE_EXCEEDED
    else:
        watching = client.watch("BAR", **ME)
        eventually(lambda: broker.watchers() == 1, within_s=WITHIN_S)
        watching.cancel()
        assert watching.code() is Status.CANCELLED
    eventually(lambda: broker.watchers() == 0, within_s=WITHIN_S)
    dial(broker).publish("FOO", b"1")
    assert client.observe("BAR", **ME) == [b"1"]


def test_many_calls_that_are_given_up_disturb_no_other(
    client: Client, broker: Broker, dial: Dial
) -> None:
    client.subscribe("FOO", "BAR")
    kept, *others = [client.watch("BAR") for _ in range(301)]
    eventually(lambda: broker.watchers() == 301, within_s=WITHIN_S)
    for other in others:
        other.cancel()
    eventually(lambda: broker.watchers() == 1, within_s=WITHIN_S)
    dial(broker).publish("FOO", b"1")
    assert payloads(next(kept)) == [b"1"]


def test_watches_of_a_stopping_server_end_and_later_messages_wait(
    transport: str, brokers: Brokers, server: Server, broker: Broker, dial: Dial
) -> None:
    with brokers.open(transport, server.url) as stopping:
        client = dial(stopping)
        client.subscribe("FOO", "BAR", **ME)
        watching = client.watch("BAR", **ME)
        eventually(lambda: stopping.watchers() == 1, within_s=WITHIN_S)
        stopping.run(stopping.server.stop())
        assert watching.code() is Status.UNAVAILABLE
        assert watching.details() == "the server is stopping"
    other = dial(broker)
    other.publish("FOO", b"1")
    assert other.observe("BAR", **ME) == [b"1"]


def test_with_a_full_redis_publishes_are_refused_and_messages_still_delivered(
    serve: Serve, dial: Dial, private_server: Server
) -> None:
    client = dial(serve(private_server.url))
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory", "1")
        for name, request in (("Publish", ONE), ("PublishMany", pb.PublishRecords(records=[ONE]))):
            assert client.status(name, request) is Status.RESOURCE_EXHAUSTED
        assert client.observe("BAR") == [b"1"]
        client.unsubscribe("FOO", "BAR")
        db.config_set("maxmemory", "0")
    client.publish("FOO", b"2")
    client.subscribe("FOO", "BAR")
    assert client.observe("BAR") == [b"2"]


@pytest.mark.slow
def test_calls_are_unavailable_while_redis_is_down_and_succeed_afterwards(
    brokers: Brokers, private_server: Server
) -> None:
    with ExitStack() as stack:
        clients: list[tuple[Client, Any]] = []
        for transport in filter(transports.has, KINDS):
            client = Client(
                stack.enter_context(brokers.open(transport, private_server.url)).address
            )
            stack.callback(client.channel.close)
            client.subscribe("FOO", transport, **ME)
            clients.append((client, pb.Identification(consumerID=transport)))
        clients[0][0].publish("FOO", b"before")
        private_server.kill()
        assert_unavailable(clients)
        private_server.restart()
        for client, _ in clients:
            eventually(lambda c=client: c.status("Publish", ONE) is Status.OK, within_s=WITHIN_S)  # type: ignore[misc]
        for client, consumer in clients:
            found = client.observe(consumer.consumerID, **ME)
            assert found == [b"before"] + [b"one"] * len(clients)


def assert_unavailable(clients: list[tuple[Client, Any]]) -> None:
    """Make all calls at once, since each is patient for ten seconds."""
    calls = [
        call
        for client, consumer in clients
        for call in (
            client.start("Publish", ONE, within_s=40),
            client.start("PublishMany", pb.PublishRecords(records=[ONE]), within_s=40),
            client.start("Subscribe", pb.Subscription(key="k", consumerID="c"), within_s=40),
            client.start("Observe", consumer, within_s=40, **ME),
            client.start("Watch", consumer, within_s=40, **ME),
        )
    ]
    for client, _ in clients:
        stub = health_pb2_grpc.HealthStub(client.channel)
        health = stub.Check(health_pb2.HealthCheckRequest(), timeout=WITHIN_S)
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    for call in calls:
        assert call.code() is Status.UNAVAILABLE
        assert "redis" in call.details()
