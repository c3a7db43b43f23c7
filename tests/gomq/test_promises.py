"""The promises of GOMQ's protocol page, over both transports, with clients that use only gRPC."""

from __future__ import annotations

import json
import re
from typing import cast

import pytest
import redis

from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as message_ops
from tests.gomq import transports
from tests.gomq.transports import Broker, Brokers, Client, Dial, Serve, payloads
from tests.servers import Server, eventually

brokers, transport, broker, serve, dial = transports.fixtures


@pytest.fixture
def client(broker: Broker, dial: Dial) -> Client:
    """One client of the broker."""
    return dial(broker)


def members(db: redis.Redis, key: str) -> set[bytes]:
    return cast("set[bytes]", db.smembers(key))


def elements(db: redis.Redis, key: str) -> list[bytes]:
    return cast("list[bytes]", db.lrange(key, 0, -1))


def bodies(db: redis.Redis, key: str) -> list[str]:
    """Payloads of a list, in base64."""
    return [json.loads(element)["payload"] for element in elements(db, key)]


# ── publish, subscribe, observe, unsubscribe ─────────────────────────────────


def test_each_call_is_answered_as_on_the_page(client: Client) -> None:
    subscription = pb.Subscription(key="FOO", consumerID="BAR")
    record = pb.PublishRecord(key="FOO", payload=b"\0\xffone")
    assert client.start("Subscribe", subscription).result() == pb.Result(code=0)
    assert client.start("Publish", record).result() == pb.Result(code=0)
    found = client.start("Observe", pb.Identification(consumerID="BAR")).result()
    assert isinstance(found, pb.RecordSet)
    (answered,) = found.records
    assert answered.key == "FOO"
    assert answered.value.payload == b"\0\xffone"
    assert client.start("Unsubscribe", subscription).result() == pb.Result(code=0)
    again = client.start("Observe", pb.Identification(consumerID="BAR")).result()
    assert again == pb.RecordSet()


def test_an_id_is_an_xid_and_a_timestamp_a_unix_date(client: Client) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"one", b"two")
    found = client.start("Observe", pb.Identification(consumerID="BAR")).result()
    ids = [record.value.id for record in found.records]
    assert ids == sorted(set(ids))
    date = (
        r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ 1-3]\d \d\d:\d\d:\d\d [A-Z+-][\w+-]* \d{4}"
    )
    for record in found.records:
        assert re.fullmatch("[0-9a-v]{20}", record.value.id)
        assert re.fullmatch(date, record.value.timestamp)


def test_messages_without_subscribers_are_kept_for_the_first_ones(
    client: Client, broker: Broker, dial: Dial, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is.
    monkeypatch.setattr(message_ops, "BACKLOG_HOLD_MS", 3_600_000)
    client.publish("FOO", b"1", b"2", b"3")
    assert db.llen("QUEUE_FOO") == 3
    first, second, third = dial(broker), dial(broker), dial(broker)
    first.subscribe("FOO", "BAR")
    second.subscribe("FOO", "QUX")
    assert first.observe("BAR") == [b"1", b"2", b"3"]
    third.subscribe("FOO", "LATE")
    assert second.observe("QUX") == [b"1", b"2", b"3"]
    assert third.observe("LATE") == []
    assert not db.exists("QUEUE_FOO")


def test_every_consumer_receives_every_message(client: Client, broker: Broker, dial: Dial) -> None:
    others = [dial(broker) for _ in range(3)]
    for number, other in enumerate(others):
        other.subscribe("FOO", f"consumer-{number}")
    client.publish("FOO", b"1", b"2")
    for number, other in enumerate(others):
        assert other.observe(f"consumer-{number}") == [b"1", b"2"]


def test_peers_with_one_consumer_id_get_a_copy_each(broker: Broker, dial: Dial) -> None:
    peers = [dial(broker) for _ in range(3)]
    for peer in peers:
        peer.subscribe("FOO", "BAR")
    peers[0].publish("FOO", b"1", b"2")
    for peer in peers:
        assert peer.observe("BAR") == [b"1", b"2"]
        assert peer.observe("BAR") == []


def test_observing_for_a_consumer_makes_a_client_its_peer(
    client: Client, broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR")
    other = dial(broker)
    assert other.observe("BAR") == []
    client.publish("FOO", b"1")
    assert other.observe("BAR") == client.observe("BAR") == [b"1"]
    assert db.scard("PEERS_BAR") == 2


def test_observing_for_a_consumer_without_subscriptions_adds_no_peer(
    client: Client, db: redis.Redis
) -> None:
    assert client.observe("BAR") == []
    assert db.dbsize() == 0


def test_unsubscribing_concerns_all_peers_of_the_consumer_and_no_other_key(
    client: Client, broker: Broker, dial: Dial
) -> None:
    other, stranger = dial(broker), dial(broker)
    for key in ("FOO", "BAZ"):
        client.subscribe(key, "BAR")
        other.subscribe(key, "BAR")
    stranger.subscribe("FOO", "QUX")
    client.unsubscribe("FOO", "BAR")
    client.publish("FOO", b"foo")
    client.publish("BAZ", b"baz")
    assert client.observe("BAR") == other.observe("BAR") == [b"baz"]
    assert stranger.observe("QUX") == [b"foo"]


def test_messages_published_after_the_last_unsubscribe_are_kept(
    client: Client, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    client.unsubscribe("FOO", "BAR")
    client.publish("FOO", b"2")
    assert bodies(db, "QUEUE_FOO") == ["MQ==", "Mg=="]
    client.subscribe("FOO", "BAR")
    assert client.observe("BAR") == [b"1", b"2"]


def test_unsubscribing_without_a_subscription_raises_nothing(
    client: Client, db: redis.Redis
) -> None:
    client.unsubscribe("FOO", "BAR")
    assert db.dbsize() == 0


def test_subscribing_twice_is_subscribing_once(client: Client) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    client.subscribe("FOO", "BAR")
    assert client.observe("BAR") == [b"1"]


def test_messages_of_a_key_come_in_the_order_of_their_publishing(
    client: Client, broker: Broker, dial: Dial
) -> None:
    publishers = dial(broker), dial(broker)
    client.subscribe("FOO", "BAR")
    wanted = [b"%d" % n for n in range(120)]
    for number, body in enumerate(wanted):
        publishers[number % 2].publish("FOO", body)
    assert client.observed("BAR", 120) == wanted


def test_a_call_hands_out_at_most_50_of_each_key(client: Client) -> None:
    client.subscribe("FOO", "BAR")
    client.subscribe("BAZ", "BAR")
    many = [pb.PublishRecord(key="FOO", payload=b"%d" % n) for n in range(120)]
    few = [pb.PublishRecord(key="BAZ", payload=b"%d" % n) for n in range(60)]
    client.start("PublishMany", pb.PublishRecords(records=many + few)).result()
    counts = []
    for _ in range(4):
        found = client.start("Observe", pb.Identification(consumerID="BAR")).result()
        keys = [record.key for record in found.records]
        counts.append((keys.count("FOO"), keys.count("BAZ")))
    assert counts == [(50, 50), (50, 10), (20, 0), (0, 0)]


@pytest.mark.parametrize("key", ["orders_2017", "_", "a b:{c}", "ключ", "x" * 1024], ids=len)
def test_any_text_is_a_key_and_a_consumer(key: str, client: Client) -> None:
    client.subscribe(key, key)
    client.publish(key, b"1")
    assert client.observe(key) == [b"1"]


def test_the_first_message_of_a_new_key_is_there_when_its_publish_is_answered(
    client: Client, broker: Broker, dial: Dial
) -> None:
    publisher = dial(broker)
    for number in range(20):
        client.subscribe(f"new-{number}", "BAR")
        publisher.publish(f"new-{number}", b"%d" % number)
        assert client.observe("BAR") == [b"%d" % number]


def test_a_message_pushed_into_a_main_queue_is_dispatched(client: Client, db: redis.Redis) -> None:
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"ours")
    db.rpush(
        "QUEUE_FOO", '{"id":"b50vl5e54p1000fo3gh0","payload":"dGhlaXJz"}', '{"payload":"Mg=="}'
    )
    assert client.observed("BAR", 3) == [b"ours", b"theirs", b"2"]


# ── silence ──────────────────────────────────────────────────────────────────


def test_a_peer_may_be_silent_for_30_seconds() -> None:
    assert Options().peer_timeout_s == 30


def test_messages_of_a_silent_peer_wait_for_the_next_one(
    serve: Serve, dial: Dial, db: redis.Redis
) -> None:
    broker = serve(peer_timeout_s=2)
    silent, publisher, heir = dial(broker), dial(broker), dial(broker)
    silent.subscribe("FOO", "BAR")
    publisher.publish("FOO", b"1", b"2")
    (peer,) = members(db, "PEERS_BAR")
    eventually(lambda: not db.exists("PEERS_BAR"), within_s=20)
    assert not db.exists(b"MESSAGES_FOO_BAR_" + peer)
    publisher.publish("FOO", b"3")
    expected = ["MQ==", "Mg==", "Mw=="]
    eventually(lambda: bodies(db, "QUEUE_FOO") == expected, within_s=20)
    assert members(db, "CONSUMERS_FOO") == {b"BAR"}
    heir.subscribe("FOO", "QUX")
    assert heir.observe("QUX") == [b"1", b"2", b"3"]


def test_messages_that_others_observed_are_dropped_with_a_silent_peer(
    serve: Serve, dial: Dial, db: redis.Redis
) -> None:
    broker = serve(peer_timeout_s=2)
    silent, awake = dial(broker), dial(broker)
    silent.subscribe("FOO", "BAR")
    (peer,) = members(db, "PEERS_BAR")
    awake.subscribe("FOO", "BAR")
    awake.publish("FOO", b"1", b"2")
    found: list[bytes] = []

    def is_disconnected() -> bool:
        found.extend(awake.observe("BAR"))
        return peer not in members(db, "PEERS_BAR")

    eventually(is_disconnected, within_s=20)
    assert found == [b"1", b"2"]
    assert not db.exists(b"MESSAGES_FOO_BAR_" + peer)
    assert not db.exists("QUEUE_FOO")


def test_a_disconnected_peer_that_observes_again_receives_again(
    serve: Serve, dial: Dial, db: redis.Redis
) -> None:
    broker = serve(peer_timeout_s=0.5)
    client, publisher = dial(broker), dial(broker)
    client.subscribe("FOO", "BAR")
    publisher.publish("FOO", b"1")
    eventually(lambda: not db.exists("PEERS_BAR"), within_s=20)
    # What it was owed goes back in a step of its own.
    eventually(lambda: client.observe("BAR") == [b"1"], within_s=20)


# ── servers ──────────────────────────────────────────────────────────────────


def test_starting_and_stopping_a_server_changes_nothing_in_the_database(
    transport: str, brokers: Brokers, server: Server, db: redis.Redis
) -> None:
    db.set("somebody's", "own")
    db.rpush("QUEUE_FOO", "1", "2")
    db.sadd("CONSUMERS_FOO", "BAR")
    db.sadd("SUBSCRIPTIONS_BAR", "FOO")
    db.sadd("SUBSCRIBED_KEYS", "QUEUE_FOO")
    before = {key: db.dump(key) for key in cast("list[bytes]", db.keys())}
    with brokers.open(transport, server.url) as opened:
        opened.run(opened.server.check())
    assert {key: db.dump(key) for key in cast("list[bytes]", db.keys())} == before


def test_two_servers_one_of_each_kind_work_together(
    brokers: Brokers, server: Server, dial: Dial, transport: str
) -> None:
    transports.need("envoy")
    here, there = (brokers.shared(name, server.url) for name in ("grpc", "envoy"))
    if transport == "envoy":
        here, there = there, here
    reader, other, publishers = dial(here), dial(there), (dial(here), dial(there))
    reader.subscribe("FOO", "BAR")
    other.subscribe("FOO", "BAR")
    watching = reader.watch("BAR")
    wanted = [b"%d" % n for n in range(60)]
    for number, body in enumerate(wanted):
        publishers[number % 2].publish("FOO", body)
    assert other.observed("BAR", 60) == wanted
    pushed: list[bytes] = []
    while len(pushed) < 60:
        pushed += payloads(next(watching))
    assert pushed == wanted
    other.unsubscribe("FOO", "BAR")
    assert list(watching) == []
    publishers[0].publish("FOO", b"kept")
    other.subscribe("FOO", "BAR")
    assert other.observe("BAR") == [b"kept"]
