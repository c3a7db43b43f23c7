"""The names and types of GOMQ's Redis keys, as on its protocol page."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, cast

import pytest
import redis

from tambomq.gomq import gomq_pb2 as pb
from tests.gomq import transports
from tests.gomq.transports import Broker, Client, Dial, Serve, by_hand
from tests.servers import eventually

brokers, transport, broker, serve, dial = transports.fixtures


@pytest.fixture
def client(broker: Broker, dial: Dial) -> Client:
    """One client of the broker."""
    return dial(broker)


def members(db: redis.Redis, key: str) -> set[bytes]:
    return cast("set[bytes]", db.smembers(key))


def elements(db: redis.Redis, key: str) -> list[bytes]:
    return cast("list[bytes]", db.lrange(key, 0, -1))


def only_peer(db: redis.Redis, consumer: str) -> str:
    (peer,) = members(db, f"PEERS_{consumer}")
    return peer.decode()


def types(db: redis.Redis) -> dict[str, str]:
    """Every key there is, and its type."""
    found = cast("list[bytes]", db.keys())
    return {key.decode(): cast("bytes", db.type(key)).decode() for key in found}


def now_s(db: redis.Redis) -> int:
    return db.time()[0]


def test_each_key_is_spelled_and_typed_as_on_the_page(
    client: Client, broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR")
    dial(broker).publish("FOO", b"1")
    client.publish("BAZ", b"2")
    peer = only_peer(db, "BAR")
    additions = {"TALLY_FOO": "hash"}
    assert types(db) == additions | {
        "CONSUMERS_FOO": "set",
        "SUBSCRIPTIONS_BAR": "set",
        "PEERS_BAR": "set",
        "SUBSCRIBED_KEYS": "set",
        "QUEUE_BAZ": "list",
        f"MESSAGES_FOO_BAR_{peer}": "list",
        f"LASTACTION_{peer}": "string",
    }
    assert members(db, "CONSUMERS_FOO") == {b"BAR"}
    assert members(db, "SUBSCRIPTIONS_BAR") == {b"FOO"}
    assert members(db, "SUBSCRIBED_KEYS") == {b"QUEUE_FOO"}


def test_the_sets_hold_all_consumers_and_their_subscriptions(
    client: Client, broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR")
    client.subscribe("BAZ", "BAR")
    dial(broker).subscribe("FOO", "QUX")
    assert members(db, "CONSUMERS_FOO") == {b"BAR", b"QUX"}
    assert members(db, "SUBSCRIPTIONS_BAR") == {b"FOO", b"BAZ"}
    assert members(db, "SUBSCRIBED_KEYS") == {b"QUEUE_FOO", b"QUEUE_BAZ"}


def test_only_a_timestamp_is_left_of_unsubscribed_peers(client: Client, db: redis.Redis) -> None:
    client.subscribe("FOO", "BAR")
    client.subscribe("BAZ", "BAR")
    peer = only_peer(db, "BAR")
    client.unsubscribe("FOO", "BAR")
    assert members(db, "SUBSCRIBED_KEYS") == {b"QUEUE_BAZ"}
    client.unsubscribe("BAZ", "BAR")
    assert types(db) == {f"LASTACTION_{peer}": "string"}
    assert db.ttl(f"LASTACTION_{peer}") > 30


def test_a_peer_is_the_address_and_port_its_call_came_from(broker: Broker, db: redis.Redis) -> None:
    request = pb.Subscription(key="FOO", consumerID="BAR").SerializeToString()
    with by_hand(broker.address, "Subscribe", request) as call:
        host, port = call.getsockname()
        eventually(lambda: db.exists("PEERS_BAR"), within_s=20)
        assert only_peer(db, "BAR") == f"{host}:{port}"
        assert db.exists(f"LASTACTION_{host}:{port}")
        db.rpush("QUEUE_FOO", "{}")
        eventually(lambda: db.exists(f"MESSAGES_FOO_BAR_{host}:{port}"), within_s=20)


def test_a_peer_over_ipv6_has_its_address_in_brackets(serve: Serve, db: redis.Redis) -> None:
    client = Client(f"[::1]:{serve(host='::1').port}")
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    peer = only_peer(db, "BAR")
    assert re.fullmatch(r"\[::1\]:\d+", peer)
    assert db.llen(f"MESSAGES_FOO_BAR_{peer}") == 1
    client.channel.close()


def test_each_connection_is_a_peer(broker: Broker, dial: Dial, db: redis.Redis) -> None:
    clients = [dial(broker) for _ in range(5)]
    for client in clients:
        client.subscribe("FOO", "BAR")
        assert client.observe("BAR") == []
    peers = members(db, "PEERS_BAR")
    assert len(peers) == 5
    assert all(re.fullmatch(rb"127\.0\.0\.1:\d+", peer) for peer in peers)
    clients[0].publish("FOO", b"1")
    for peer in peers:
        assert db.llen(b"MESSAGES_FOO_BAR_" + peer) == 1
    for client in clients:
        client.observe("BAR")
    assert not db.keys("MESSAGES_*")


def test_the_last_action_is_the_time_of_the_last_observe_in_epoch_seconds(
    client: Client, db: redis.Redis
) -> None:
    client.subscribe("FOO", "BAR")
    key = f"LASTACTION_{only_peer(db, 'BAR')}"
    db.set(key, "1500000000")
    before = now_s(db)
    client.observe("BAR")
    text = cast("bytes", db.get(key))
    assert re.fullmatch(rb"\d{10}", text)
    assert before <= int(text) <= now_s(db)


def test_an_element_is_json_with_id_timestamp_and_payload_in_base64(
    client: Client, db: redis.Redis
) -> None:
    bodies = [b"hi", b"\0\xff\xfe", bytes(range(256))]
    client.publish("FOO", *bodies)
    raw = elements(db, "QUEUE_FOO")
    found: list[dict[str, Any]] = [json.loads(element) for element in raw]
    assert [list(element) for element in found] == [["id", "timestamp", "payload"]] * 3
    assert [base64.b64decode(element["payload"], validate=True) for element in found] == bodies
    for element, text in zip(found, raw, strict=True):
        assert re.fullmatch("[0-9a-v]{20}", element["id"])
        assert text == json.dumps(element, separators=(",", ":")).encode()


def test_an_empty_payload_is_left_out(client: Client, db: redis.Redis) -> None:
    client.publish("FOO", b"")
    (element,) = elements(db, "QUEUE_FOO")
    assert set(json.loads(element)) == {"id", "timestamp"}
    client.subscribe("FOO", "BAR")
    assert client.observe("BAR") == [b""]


def test_observed_messages_match_the_redis_list(client: Client, db: redis.Redis) -> None:
    client.publish("FOO", b"1")
    (stood,) = map(json.loads, elements(db, "QUEUE_FOO"))
    client.subscribe("FOO", "BAR")
    queue = f"MESSAGES_FOO_BAR_{only_peer(db, 'BAR')}"
    eventually(lambda: bool(elements(db, queue)), within_s=20)
    (copied,) = map(json.loads, elements(db, queue))
    found = client.start("Observe", pb.Identification(consumerID="BAR")).result()
    (value,) = (record.value for record in found.records)
    assert stood == copied == {"id": value.id, "timestamp": value.timestamp, "payload": "MQ=="}


def test_keys_and_consumers_that_share_an_underscore_are_kept_apart_by_their_peers(
    broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    one, other = dial(broker), dial(broker)
    one.subscribe("a_b", "c")
    other.subscribe("a", "b_c")
    one.publish("a_b", b"1")
    one.publish("a", b"2")
    assert db.llen(f"MESSAGES_a_b_c_{only_peer(db, 'c')}") == 1
    assert one.observe("c") == [b"1"]
    assert other.observe("b_c") == [b"2"]
