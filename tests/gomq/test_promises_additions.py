"""Additions of our servers to the protocol, over both transports, for clients that use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import redis
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tambomq.gomq import gomq_pb2 as pb
from tambomq.tls import ServerTls
from tests.gomq import transports
from tests.gomq.transports import WITHIN_S, Broker, Client, Dial, Serve, payloads
from tests.servers import eventually
from tests.servers.tls import Certificate, certificate

brokers, transport, broker, serve, dial = transports.fixtures

Status = grpc.StatusCode
CONSUMER = pb.Identification(consumerID="BAR")
ONE = pb.PublishRecord(key="FOO", payload=b"1")


@pytest.fixture
def client(broker: Broker, dial: Dial) -> Client:
    """One client of the broker."""
    return dial(broker)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Certificate]:
    """A function from a name to a certificate, the same for the same name."""
    known: dict[str, Certificate] = {}

    def make(name: str) -> Certificate:
        if name not in known:
            known[name] = certificate(tmp_path_factory.mktemp(name))
        return known[name]

    return make


# ── PublishMany ──────────────────────────────────────────────────────────────


def test_records_that_are_published_together_arrive_in_their_order(client: Client) -> None:
    client.subscribe("FOO", "BAR")
    client.subscribe("BAZ", "BAR")
    records = [pb.PublishRecord(key=("FOO", "BAZ")[n % 2], payload=b"%d" % n) for n in range(40)]
    result = client.start("PublishMany", pb.PublishRecords(records=records)).result()
    assert result == pb.Result(code=0)
    found = client.start("Observe", CONSUMER).result().records
    for key in ("FOO", "BAZ"):
        wanted = [record.payload for record in records if record.key == key]
        assert [record.value.payload for record in found if record.key == key] == wanted


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (pb.PublishRecord(payload=b"no key"), Status.INVALID_ARGUMENT),
        (pb.PublishRecord(key="broken"), Status.FAILED_PRECONDITION),
    ],
)
def test_a_batch_with_one_refused_record_publishes_nothing(
    bad: pb.PublishRecord, status: grpc.StatusCode, client: Client, db: redis.Redis
) -> None:
    db.set("QUEUE_broken", "no list")
    records = pb.PublishRecords(records=[ONE, bad, ONE])
    assert client.status("PublishMany", records) is status
    assert db.keys() == [b"QUEUE_broken"]


def test_publishing_no_records_succeeds(client: Client, db: redis.Redis) -> None:
    assert client.status("PublishMany", pb.PublishRecords()) is Status.OK
    assert db.dbsize() == 0


# ── Watch ────────────────────────────────────────────────────────────────────


def test_a_watcher_is_given_what_waits_and_then_what_comes(
    client: Client, broker: Broker, dial: Dial
) -> None:
    publisher = dial(broker)
    publisher.publish("FOO", b"before")
    client.subscribe("FOO", "BAR")
    watching = client.watch("BAR")
    assert payloads(next(watching)) == [b"before"]
    for number in range(5):
        publisher.publish("FOO", b"%d" % number)
        assert payloads(next(watching)) == [b"%d" % number]


def test_a_watcher_gets_messages_of_keys_that_are_subscribed_later(
    client: Client, broker: Broker, dial: Dial
) -> None:
    other = dial(broker)
    client.subscribe("FOO", "BAR")
    watching = client.watch("BAR")
    eventually(lambda: broker.watchers() == 1, within_s=WITHIN_S)
    other.publish("BAZ", b"waits")
    client.subscribe("BAZ", "BAR")
    assert payloads(next(watching)) == [b"waits"]


def test_watching_ends_well_when_the_last_key_is_unsubscribed(
    client: Client, broker: Broker, dial: Dial
) -> None:
    client.subscribe("FOO", "BAR")
    client.subscribe("BAZ", "BAR")
    watching = client.watch("BAR")
    other = dial(broker)
    other.publish("FOO", b"1")
    assert payloads(next(watching)) == [b"1"]
    other.unsubscribe("FOO", "BAR")
    other.publish("BAZ", b"2")
    assert payloads(next(watching)) == [b"2"]
    other.unsubscribe("BAZ", "BAR")
    assert list(watching) == []
    assert watching.code() is Status.OK


def test_watching_for_a_consumer_without_a_subscription_ends_well_at_once(client: Client) -> None:
    watching = client.watch("BAR")
    assert list(watching) == []
    assert watching.code() is Status.OK


def test_an_idle_watcher_is_not_silent(serve: Serve, dial: Dial, db: redis.Redis) -> None:
    broker = serve(peer_timeout_s=3)
    watcher, silent = dial(broker), dial(broker)
    watcher.subscribe("FOO", "BAR")
    watching = watcher.watch("BAR")
    silent.subscribe("FOO", "QUX")
    eventually(lambda: not db.exists("PEERS_QUX"), within_s=WITHIN_S)
    assert db.scard("PEERS_BAR") == 1
    silent.publish("FOO", b"1")
    assert payloads(next(watching)) == [b"1"]


# ── peers with a name ────────────────────────────────────────────────────────


def test_a_peer_with_a_name_finds_its_queue_when_it_comes_from_another_port(
    client: Client, broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR", x_gomq_peer="billing-1")
    assert db.smembers("PEERS_BAR") == {b"billing-1"}
    dial(broker).publish("FOO", b"1", b"2")
    client.channel.close()
    assert db.llen("MESSAGES_FOO_BAR_billing-1") == 2
    again = dial(broker)
    assert again.observe("BAR", x_gomq_peer="billing-1") == [b"1", b"2"]
    assert db.smembers("PEERS_BAR") == {b"billing-1"}


def test_a_client_may_ask_for_less_at_once(client: Client) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1", b"2", b"3")
    assert client.observe("BAR", x_gomq_max="2") == [b"1", b"2"]
    assert client.observe("BAR", x_gomq_max="0") == []
    assert client.observe("BAR", x_gomq_max="1000") == [b"3"]


def batch(call: Any) -> str:
    """The name under which a reply can be acknowledged."""
    return cast("str", dict(call.initial_metadata())["x-gomq-batch"])


def test_a_batch_that_was_lost_is_handed_out_again_until_it_is_acknowledged(
    client: Client, broker: Broker, dial: Dial
) -> None:
    me: dict[str, Any] = {"x_gomq_peer": "me"}
    client.subscribe("FOO", "BAR", **me)
    client.publish("FOO", b"1", b"2")
    lost = client.start("Observe", CONSUMER, **me, x_gomq_ack="")
    assert payloads(lost.result()) == [b"1", b"2"]
    client.publish("FOO", b"3")
    client.channel.close()
    again = dial(broker)
    same = again.start("Observe", CONSUMER, **me, x_gomq_ack="")
    assert payloads(same.result()) == [b"1", b"2"]
    assert batch(same) == batch(lost)
    more = again.start("Observe", CONSUMER, **me, x_gomq_ack=batch(same))
    assert payloads(more.result()) == [b"3"]
    assert batch(more) != batch(same)
    none = again.start("Observe", CONSUMER, **me, x_gomq_ack=batch(more))
    assert payloads(none.result()) == []


def test_without_a_name_nothing_is_kept(client: Client, db: redis.Redis) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    assert client.observe("BAR", x_gomq_ack="") == [b"1"]
    assert client.observe("BAR", x_gomq_ack="") == []
    assert not db.keys("HANDED_*")


# ── health and reflection ────────────────────────────────────────────────────


@pytest.mark.parametrize("service", ["", "routeguide.RouteGuide"])
def test_the_health_service_says_that_it_serves(service: str, client: Client) -> None:
    stub = health_pb2_grpc.HealthStub(client.channel)
    asked = health_pb2.HealthCheckRequest(service=service)
    assert stub.Check(asked, timeout=WITHIN_S).status == health_pb2.HealthCheckResponse.SERVING
    watching = stub.Watch(asked, timeout=WITHIN_S)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()


def test_reflection_describes_the_protocol(client: Client) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    questions = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="routeguide.RouteGuide"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(questions), timeout=WITHIN_S)
    assert {each.name for each in listed.list_services_response.service} == {
        "routeguide.RouteGuide",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    (file,) = described.file_descriptor_response.file_descriptor_proto
    (service,) = FileDescriptorProto.FromString(file).service
    assert [method.name for method in service.method][:4] == [
        *("Publish", "Subscribe", "Unsubscribe", "Observe")
    ]


# ── authentication ────────────────────────────────────────────────────────────


def test_with_a_token_only_clients_that_send_it_are_served(
    serve: Serve, dial: Dial, db: redis.Redis
) -> None:
    client = dial(serve(token="open sesame"))
    for name, request in (("Publish", ONE), ("Observe", CONSUMER), ("Watch", CONSUMER)):
        assert client.status(name, request) is Status.UNAUTHENTICATED
        wrong = client.start(name, request, authorization="Bearer open")
        assert wrong.code() is Status.UNAUTHENTICATED
    assert db.dbsize() == 0
    let_in = client.start("Publish", ONE, authorization="Bearer open sesame")
    assert let_in.result() == pb.Result(code=0)
    asked = health_pb2.HealthCheckRequest()
    stub = health_pb2_grpc.HealthStub(client.channel)
    assert stub.Check(asked, timeout=WITHIN_S).status == health_pb2.HealthCheckResponse.SERVING


def test_with_tls_only_tls_clients_are_served(
    serve: Serve, dial: Dial, db: redis.Redis, made: Callable[[str], Certificate]
) -> None:
    ours = made("ours")
    broker = serve(tls=ServerTls(ours.cert, ours.key))
    trusting = grpc.ssl_channel_credentials(ours.cert.read_bytes())
    client = dial(broker, credentials=trusting)
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    watching = client.watch("BAR")
    assert payloads(next(watching)) == [b"1"]
    (peer,) = cast("set[bytes]", db.smembers("PEERS_BAR"))
    assert peer.startswith(b"127.0.0.1:")
    doubting = grpc.ssl_channel_credentials(made("theirs").cert.read_bytes())
    for other in (dial(broker), dial(broker, credentials=doubting)):
        assert other.status("Publish", ONE) is Status.UNAVAILABLE


def test_with_a_client_ca_only_clients_with_a_certificate_are_served(
    serve: Serve, dial: Dial, made: Callable[[str], Certificate]
) -> None:
    ours, theirs = made("ours"), made("theirs")
    broker = serve(tls=ServerTls(ours.cert, ours.key, client_ca=theirs.cert))

    def dialled(*own: Path) -> Client:
        pems = [path.read_bytes() for path in own]
        credentials = grpc.ssl_channel_credentials(ours.cert.read_bytes(), *pems)
        return dial(broker, credentials=credentials)

    assert dialled(theirs.key, theirs.cert).status("Publish", ONE) is Status.OK
    assert dialled().status("Publish", ONE) is Status.UNAVAILABLE
    assert dialled(ours.key, ours.cert).status("Publish", ONE) is Status.UNAVAILABLE
