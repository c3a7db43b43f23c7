"""Both clients against a real server on a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Thread
from typing import Any

import grpc
import pytest
import redis

from tambomq.errors import (
    BrokerRefused,
    BrokerUnavailable,
    InvalidBody,
    InvalidFormat,
    InvalidValue,
)
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.async_client import AsyncGomqClient
from tambomq.gomq.client import GomqClient
from tambomq.gomq.model import Record
from tests.gomq.fakes import KINDS, Served, connected, serving
from tests.servers import Server, eventually
from tests.store.proxy import Proxy

Connect = Callable[..., GomqClient]


@pytest.fixture
def served(server: Server) -> Iterator[Served]:
    """A GOMQ server on an empty store."""
    with serving(server.url) as running:
        yield running


@pytest.fixture(params=KINDS)
def connect_to(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A function from an address and options to a client, which is closed after the test."""
    with ExitStack() as stack:

        def connect(address: str, **options: Any) -> GomqClient:
            return stack.enter_context(connected(request.param, address, **options))

        yield connect


@pytest.fixture
def connect(connect_to: Connect, served: Served) -> Connect:
    """A function from options to a client of the server."""
    return lambda **options: connect_to(served.address, **options)


@pytest.fixture
def client(connect: Connect) -> GomqClient:
    """In turn the blocking client and the asyncio one."""
    return connect()


def payloads(records: list[Record]) -> list[bytes]:
    return [record.payload for record in records]


def texts(records: list[Record]) -> list[str]:
    return [record.text for record in records]


# ── what goes through ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "payload", ["", "text", "ünïcödé ☃", b"", b"\x00\xff\x80", b"x" * 1_000_000]
)
def test_a_payload_arrives_as_it_was_sent(client: GomqClient, payload: str | bytes) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", payload)
    (record,) = client.observe("shop")
    assert record.key == "orders"
    assert record.payload == (payload.encode() if isinstance(payload, str) else payload)
    assert len(record.id) == 20
    assert record.timestamp
    assert client.observe("shop") == []


def test_a_record_has_its_payload_as_text() -> None:
    assert Record("k", "", "", "☃".encode()).text == "☃"
    with pytest.raises(UnicodeDecodeError):
        _ = Record("k", "", "", b"\xff").text


def test_the_first_subscriber_gets_what_was_published_before(client: GomqClient) -> None:
    client.publish("orders", "one")
    assert client.publish_many([("orders", "two"), ("orders", b"three"), ("others", "x")]) == 3
    client.subscribe("orders", "shop")
    assert texts(client.observe("shop")) == ["one", "two", "three"]


def test_every_client_of_a_consumer_gets_every_payload(connect: Connect) -> None:
    one, two = connect(), connect()
    assert one.peer != two.peer
    for each in (one, two):
        each.subscribe("orders", "shop")
    one.publish("orders", "hello")
    assert texts(one.observe("shop")) == texts(two.observe("shop")) == ["hello"]


def test_unsubscribing_ends_it_for_all_clients_of_a_consumer(connect: Connect) -> None:
    one, two = connect(), connect()
    for each in (one, two):
        each.subscribe("orders", "shop")
    one.unsubscribe("orders", "shop")
    one.publish("orders", "hello")
    assert two.observe("shop") == []


def test_no_more_than_the_limit_is_observed(client: GomqClient) -> None:
    client.subscribe("orders", "shop")
    client.publish_many([("orders", str(number)) for number in range(5)])
    assert texts(client.observe("shop", limit=2)) == ["0", "1"]
    assert texts(client.observe("shop")) == ["2", "3", "4"]
    with pytest.raises(InvalidValue):
        client.observe("shop", limit=0)


def test_of_many_records_all_are_published_or_none(client: GomqClient, db: redis.Redis) -> None:
    with pytest.raises(InvalidFormat):
        client.publish_many([("orders", "one"), ("", "two")])
    with pytest.raises(BrokerRefused) as caught:
        client.publish_many([("orders", "one"), ("orders", b"x" * (4 << 20))])
    assert caught.value.status == "RESOURCE_EXHAUSTED"
    assert client.publish_many([]) == 0
    assert db.keys("*") == []


def test_a_client_without_metadata_uses_the_keys_of_the_specification(
    served: Served, db: redis.Redis
) -> None:
    with grpc.insecure_channel(served.address, [("grpc.enable_http_proxy", 0)]) as channel:

        def call(name: str, message: Any, reply: Any) -> Any:
            path = f"/routeguide.RouteGuide/{name}"
            stub = channel.unary_unary(path, type(message).SerializeToString, reply.FromString)
            return stub(message, timeout=60)

        call("Subscribe", pb.Subscription(key="FOO", consumerID="BAR"), pb.Result)
        call("Publish", pb.PublishRecord(key="FOO", payload=b"one"), pb.Result)
        peer = str(db.srandmember("PEERS_BAR"), "ascii")  # type: ignore[arg-type]
        assert peer.startswith("127.0.0.1:")
        assert db.llen(f"MESSAGES_FOO_BAR_{peer}") == 1
        (record,) = call("Observe", pb.Identification(consumerID="BAR"), pb.RecordSet).records
        assert record.value.payload == b"one"
        assert not db.exists(f"MESSAGES_FOO_BAR_{peer}")
        assert db.exists(f"LASTACTION_{peer}")


# ── what is lost on the way ──────────────────────────────────────────────────


def test_a_reply_that_was_lost_is_handed_out_again(
    served: Served, connect_to: Connect, connect: Connect
) -> None:
    publisher = connect()
    with Proxy(served.server.address[1]) as proxy:
        client = connect_to(f"127.0.0.1:{proxy.port}", timeout_s=0.5)
        client.subscribe("orders", "shop")
        publisher.publish_many([("orders", "one"), ("orders", "two")])
        proxy.silent = True
        with pytest.raises(BrokerUnavailable):
            client.observe("shop")
        proxy.silent = False
        proxy.hang_up()
        publisher.publish("orders", "three")
        assert texts(eventually(lambda: observed(client))) == ["one", "two"]
        assert texts(client.observe("shop")) == ["three"]
        assert client.observe("shop") == []


def observed(client: GomqClient) -> list[Record]:
    """What it observes, once it has noticed that its connection is gone."""
    try:
        return client.observe("shop")
    except BrokerUnavailable:
        return []


def test_a_watcher_gets_first_what_was_lost(client: GomqClient, connect: Connect) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", "one")
    heir = connect(peer=client.peer)
    assert texts(client.observe("shop")) == ["one"]
    client.publish("orders", "two")
    records = heir.watch("shop")
    assert [next(records).text, next(records).text] == ["one", "two"]
    heir.unsubscribe("orders", "shop")
    assert list(records) == []


def test_a_peer_that_returns_under_its_name_gets_its_messages(connect: Connect) -> None:
    connect(peer="till 4").subscribe("orders", "shop")
    connect().publish("orders", "one")
    assert texts(connect(peer="till 4").observe("shop")) == ["one"]


def test_closing_acknowledges_what_was_observed(client: GomqClient, db: redis.Redis) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", "one")
    client.observe("shop")
    assert db.keys("HANDED_*")
    client.close()
    assert not db.keys("HANDED_*")


def test_leaving_with_an_error_acknowledges_nothing(served: Served) -> None:
    def fail() -> None:
        with GomqClient(served.address, peer="me") as client:
            client.subscribe("orders", "shop")
            client.publish("orders", "one")
            client.observe("shop")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with GomqClient(served.address, peer="me") as client:
        assert texts(client.observe("shop")) == ["one"]


def test_threads_that_observe_together_get_each_payload_once(served: Served) -> None:
    got: list[Record] = []
    with GomqClient(served.address) as client:
        client.subscribe("orders", "shop")
        client.publish_many([("orders", str(number)) for number in range(300)])

        def take() -> None:
            while records := client.observe("shop", limit=5):
                got.extend(records)

        threads = [Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(map(int, texts(got))) == list(range(300))


# ── watching ─────────────────────────────────────────────────────────────────


def test_a_watcher_gets_what_waits_and_what_comes(client: GomqClient, connect: Connect) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", "one")
    client.observe("shop")
    client.publish_many([("orders", "two"), ("orders", "three")])
    records = client.watch("shop")
    assert [next(records).text for _ in range(2)] == ["two", "three"]
    connect().publish("orders", "four")
    assert next(records).text == "four"


def test_watching_without_a_subscription_ends_at_once(client: GomqClient) -> None:
    assert list(client.watch("nobody")) == []


def test_watching_ends_when_the_client_is_closed(client: GomqClient) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", "one")
    records = client.watch("shop")
    next(records)
    rest: list[list[Record]] = []
    thread = Thread(target=lambda: rest.append(list(records)))
    thread.start()
    client.close()
    thread.join(60)
    assert rest == [[]]


def test_watching_fails_when_the_server_goes_away(client: GomqClient, served: Served) -> None:
    client.subscribe("orders", "shop")
    client.publish("orders", "one")
    records = client.watch("shop")
    next(records)
    served.run(served.server.stop())
    with pytest.raises(BrokerUnavailable):
        next(records)


def test_messages_that_a_watcher_did_not_receive_wait_for_it(
    client: GomqClient, served: Served
) -> None:
    client.subscribe("orders", "shop")
    records = client.watch("shop")
    client.publish("orders", "one")
    next(records)
    eventually(lambda: served.server.stats.watchers == 1)
    records.close()  # type: ignore[attr-defined]
    eventually(lambda: served.server.stats.watchers == 0)
    client.publish("orders", "two")
    assert texts(client.observe("shop")) == ["two"]


def test_a_watch_ends_after_its_batch_if_the_client_was_closed(client: GomqClient) -> None:
    client.subscribe("orders", "shop")
    client.publish_many([("orders", "one"), ("orders", "two")])
    records = client.watch("shop")
    next(records)
    client.close()
    assert texts(list(records)) == ["two"]


def test_a_batch_that_was_not_read_completely_is_delivered_again(client: GomqClient) -> None:
    client.subscribe("orders", "shop")
    client.publish_many([("orders", "one"), ("orders", "two")])
    records = client.watch("shop")
    assert next(records).text == "one"
    records.close()  # type: ignore[attr-defined]
    records = client.watch("shop")
    assert [next(records).text, next(records).text] == ["one", "two"]
    records.close()  # type: ignore[attr-defined]
    client.publish("orders", "three")
    assert texts(client.observe("shop")) == ["three"]


# ── what goes wrong ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", None, 7, b"bytes", "\ud800", "x" * 16_385])
def test_a_name_that_no_server_takes_is_refused_here(client: GomqClient, name: Any) -> None:
    for call in (
        lambda: client.publish(name, "one"),
        lambda: client.publish_many([(name, "one")]),
        lambda: client.subscribe(name, "shop"),
        lambda: client.subscribe("orders", name),
        lambda: client.unsubscribe(name, "shop"),
        lambda: client.observe(name),
        lambda: client.watch(name),
    ):
        with pytest.raises(InvalidFormat):
            call()


@pytest.mark.parametrize("payload", [None, 7, "\ud800", ["one"]])
def test_a_payload_that_is_neither_text_nor_bytes_is_refused_by_the_client(
    client: GomqClient, payload: Any
) -> None:
    with pytest.raises(InvalidBody):
        client.publish("orders", payload)


@pytest.mark.parametrize("kind", [GomqClient, AsyncGomqClient])
def test_invalid_options_of_a_client_are_refused_at_once(kind: type[GomqClient]) -> None:
    for address in ("", "localhost", "10001", ":10001", "::1", "::1:10001", "host:http"):
        with pytest.raises(InvalidFormat, match="address"):
            kind(address)
    for peer in ("", "a:b", "ü", "a\n", "x" * 129):
        with pytest.raises(InvalidFormat, match="x-gomq-peer"):
            kind(peer=peer)
    with pytest.raises(InvalidFormat, match="authorization"):
        kind(token="a\nb")
    with pytest.raises(InvalidValue, match="timeout_s"):
        kind(timeout_s=0)
    with pytest.raises(InvalidValue, match="patience_s"):
        kind(patience_s=-1)
