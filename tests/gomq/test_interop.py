"""One server, clients of different makers: any of them can publish, subscribe and observe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import product
from typing import Any

import pytest
import redis

from tambomq.gomq.server.methods import SERVICE
from tambomq.tls import ServerTls
from tests.gomq import transports
from tests.gomq.fakes import KINDS as OURS
from tests.gomq.fakes import connected
from tests.gomq.transports import WITHIN_S, Broker, Serve
from tests.peers.driver import PeerError
from tests.peers.gomq import BufCurl, Connected, GrpcJs
from tests.servers import eventually
from tests.servers.tls import certificate

pytestmark = pytest.mark.interop

brokers, transport, broker, serve, dial = transports.fixtures

FOREIGN = ("grpc-js",)
# At least one of ours and one foreign client: pairs of foreign clients are not tested.
PAIRS = [*product(OURS, FOREIGN), *product(FOREIGN, OURS)]
BODIES = [b"one", b"", b"\0\xff\xfe", "ключ 鍵".encode(), bytes(range(256)) * 40]
ME = {"x_gomq_peer": "me"}

Connect = Callable[[str], Any]


@pytest.fixture(scope="module")
def grpc_js() -> Iterator[GrpcJs]:
    """The process that grpc-js runs in."""
    with GrpcJs() as process:
        yield process


@pytest.fixture
def connect(broker: Broker, grpc_js: GrpcJs) -> Iterator[Connect]:
    """A function from a maker to a client of the broker."""
    with ExitStack() as stack:

        def make(maker: str) -> Any:
            if maker in OURS:
                return stack.enter_context(connected(maker, broker.address))
            client = grpc_js.connect(broker.address)
            stack.callback(client.close)
            return client

        yield make
    eventually(lambda: broker.watchers() == 0, within_s=WITHIN_S)


@pytest.fixture
def js(connect: Connect) -> Connected:
    """A client of grpc-js."""
    client: Connected = connect("grpc-js")
    return client


@pytest.fixture
def buf(broker: Broker) -> BufCurl:
    """``buf curl`` with the address of the broker."""
    return BufCurl(broker.address)


def bodies(records: list[Any]) -> list[bytes]:
    return [record.payload for record in records]


# ── grpc-js and ours ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(("publisher", "subscriber"), PAIRS)
def test_messages_of_each_client_are_observed_by_each_other(
    publisher: str, subscriber: str, connect: Connect
) -> None:
    a, b = connect(publisher), connect(subscriber)
    b.subscribe("orders_1", "BAR")
    for body in BODIES:
        a.publish("orders_1", body)
    assert a.publish_many([("orders_1", body) for body in BODIES]) == len(BODIES)
    records = b.observe("BAR")
    assert bodies(records) == BODIES * 2
    assert {record.key for record in records} == {"orders_1"}
    assert all(re.fullmatch("[0-9a-v]{20}", record.id) for record in records)
    assert len({record.id for record in records}) == len(records)
    assert all(re.fullmatch(r"\w{3} \w{3} .* \d{4}", record.timestamp) for record in records)
    assert b.observe("BAR") == []


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_peers_of_one_consumer_get_the_same_copies_from_every_dispatcher(
    first: str, second: str, connect: Connect
) -> None:
    a, b = connect(first), connect(second)
    a.subscribe("FOO", "BAR")
    b.subscribe("FOO", "BAR")
    for number in range(60):
        (a, b)[number % 2].publish("FOO", str(number))
    seen = [peer.observe("BAR") + peer.observe("BAR") for peer in (a, b)]
    assert seen[0] == seen[1]
    assert bodies(seen[0]) == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize(("leaver", "left"), PAIRS)
def test_an_unsubscribe_by_one_client_applies_to_the_other(
    leaver: str, left: str, connect: Connect
) -> None:
    a, b = connect(leaver), connect(left)
    a.subscribe("FOO", "BAR")
    b.subscribe("FOO", "BAR")
    b.publish("FOO", "1")
    a.unsubscribe("FOO", "BAR")
    b.publish("FOO", "2")
    assert a.observe("BAR") == b.observe("BAR") == []
    b.subscribe("FOO", "BAR")
    assert bodies(b.observe("BAR")) == [b"1", b"2"]


@pytest.mark.parametrize(("publisher", "watcher"), PAIRS)
def test_one_client_watches_messages_of_another_until_it_unsubscribes(
    publisher: str, watcher: str, connect: Connect
) -> None:
    a, b = connect(publisher), connect(watcher)
    b.subscribe("FOO", "BAR")
    watching = b.watch("BAR")
    for body in BODIES:
        a.publish("FOO", body)
        assert next(watching).payload == body
    a.unsubscribe("FOO", "BAR")
    assert list(watching) == []


def test_a_stream_of_grpc_js_ends_with_ok_when_nothing_is_subscribed(js: Connected) -> None:
    js.subscribe("FOO", "BAR")
    js.begin_to_watch("BAR")
    js.publish("FOO", b"1")
    assert bodies(js.seen(1)) == [b"1"]
    js.unsubscribe("FOO", "BAR")
    assert js.ended() == "OK"


def test_the_longest_payload_passes_grpc_js_with_its_usual_limits(js: Connected) -> None:
    longest = bytes((4 << 20) - len("FOO") - 128)
    js.subscribe("FOO", "BAR")
    js.publish("FOO", longest)
    js.publish("FOO", b"next")
    assert bodies(js.observe("BAR")) == [longest]
    assert bodies(js.observe("BAR")) == [b"next"]


# ── metadata ─────────────────────────────────────────────────────────────────


def test_grpc_js_may_name_itself_and_acknowledge(
    js: Connected, connect: Connect, db: redis.Redis
) -> None:
    js.subscribe("FOO", "BAR", **ME)
    assert db.smembers("PEERS_BAR") == {b"me"}
    js.publish_many([("FOO", b"1"), ("FOO", b"2")])
    first, metadata = js.observe_with_metadata("BAR", **ME, x_gomq_ack="")
    again, same = connect("grpc-js").observe_with_metadata("BAR", **ME, x_gomq_ack="")
    assert bodies(first) == bodies(again) == [b"1", b"2"]
    assert metadata["x-gomq-batch"] == same["x-gomq-batch"]
    js.publish("FOO", b"3")
    rest, _ = js.observe_with_metadata("BAR", **ME, x_gomq_ack=metadata["x-gomq-batch"])
    assert bodies(rest) == [b"3"]


class Lost(Exception):
    """A client is left without a last word."""


@pytest.mark.parametrize("ours", OURS)
def test_grpc_js_continues_as_the_peer_of_a_lost_tambomq_client(
    ours: str, broker: Broker, js: Connected
) -> None:
    with suppress(Lost), connected("threads", broker.address, peer="me") as client:
        client.subscribe("FOO", "BAR")
        client.publish_many([("FOO", "1"), ("FOO", "2")])
        assert bodies(client.observe("BAR")) == [b"1", b"2"]
        client.publish("FOO", "3")
        raise Lost
    again, metadata = js.observe_with_metadata("BAR", **ME, x_gomq_ack="")
    assert bodies(again) == [b"1", b"2"]
    js.observe_with_metadata("BAR", **ME, x_gomq_ack=metadata["x-gomq-batch"], x_gomq_max="0")
    with connected(ours, broker.address, peer="me") as client:
        assert bodies(client.observe("BAR")) == [b"3"]


def test_grpc_js_connects_with_tls_and_a_token(
    serve: Serve, grpc_js: GrpcJs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = certificate(tmp_path_factory.mktemp("tls"))
    broker = serve(tls=ServerTls(made.cert, made.key), token="open sesame")
    let_in = grpc_js.connect(broker.address, ca=str(made.cert), token="open sesame")
    let_in.subscribe("FOO", "BAR")
    let_in.publish("FOO", b"1")
    assert bodies(let_in.observe("BAR")) == [b"1"]
    stranger = grpc_js.connect(broker.address, ca=str(made.cert))
    with pytest.raises(PeerError) as refused:
        stranger.publish("FOO", b"2")
    assert refused.value.code == "UNAUTHENTICATED"
    let_in.close()
    stranger.close()


# ── buf curl ─────────────────────────────────────────────────────────────────


def test_each_call_of_buf_curl_comes_from_a_peer_of_its_own(buf: BufCurl, db: redis.Redis) -> None:
    for peers in (1, 2):
        assert buf.call("Subscribe", {"key": "FOO", "consumerID": "BAR"}) == {}
        assert db.scard("PEERS_BAR") == peers


@pytest.mark.parametrize("maker", [*OURS, *FOREIGN])
def test_messages_published_by_buf_curl_are_observed(
    maker: str, buf: BufCurl, connect: Connect
) -> None:
    client = connect(maker)
    client.subscribe("FOO", "BAR")
    assert buf.call("Publish", {"key": "FOO", "payload": "AP/+"}) == {}
    assert bodies(client.observe("BAR")) == [b"\0\xff\xfe"]


def test_buf_curl_keeps_its_queue_by_a_name(buf: BufCurl, connect: Connect) -> None:
    buf.call("Subscribe", {"key": "FOO", "consumerID": "BAR"}, **ME)
    connect("threads").publish("FOO", b"\0\xff\xfe")
    reply = buf.call("Observe", {"consumerID": "BAR"}, **ME)
    (record,) = reply["records"]
    assert (record["key"], record["value"]["payload"]) == ("FOO", "AP/+")
    assert buf.call("Observe", {"consumerID": "BAR"}, **ME) == {}


def test_buf_curl_learns_the_protocol_from_the_server_itself(buf: BufCurl, db: redis.Redis) -> None:
    record = {"key": "FOO", "payload": "AP/+"}
    assert buf.call("Publish", record, "--reflect") == {}
    assert db.llen("QUEUE_FOO") == 1
    assert SERVICE in buf.listed("services")
    names = ("Publish", "PublishMany", "Subscribe", "Unsubscribe", "Observe", "Watch")
    assert {f"{SERVICE}/{name}" for name in names} <= set(buf.listed("methods"))
