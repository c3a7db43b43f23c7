"""Bad calls get the same status over both transports, and good ones beside them are served."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest
import redis

from tambomq.gomq import gomq_pb2 as pb
from tambomq.journal.policy import JournalBounds
from tests.gomq import transports
from tests.gomq.transports import WITHIN_S, Broker, Client, Dial, Serve, by_hand, payloads
from tests.journal.looking import bodies
from tests.servers import Server, eventually

brokers, transport, broker, serve, dial = transports.fixtures

Status = grpc.StatusCode
CALLS: dict[str, Any] = {
    "Publish": pb.PublishRecord(key="FOO", payload=b"1"),
    "PublishMany": pb.PublishRecords(records=[pb.PublishRecord(key="FOO", payload=b"1")]),
    "Subscribe": pb.Subscription(key="FOO", consumerID="BAR"),
    "Unsubscribe": pb.Subscription(key="FOO", consumerID="BAR"),
    "Observe": pb.Identification(consumerID="BAR"),
    "Watch": pb.Identification(consumerID="BAR"),
}
LIMIT = 4 << 20


@pytest.fixture
def client(broker: Broker, dial: Dial) -> Client:
    """One client of the broker."""
    return dial(broker)


def is_served(client: Client) -> None:
    """Assert that a message goes all its way."""
    client.subscribe("still-here", "good")
    client.publish("still-here", b"served")
    assert client.observe("good") == [b"served"]
    client.unsubscribe("still-here", "good")


# ── requests ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "request_", "details"),
    [
        ("Publish", pb.PublishRecord(payload=b"1"), "key"),
        ("PublishMany", pb.PublishRecords(records=[pb.PublishRecord()]), "key"),
        ("Subscribe", pb.Subscription(key="FOO"), "consumerID"),
        ("Subscribe", pb.Subscription(consumerID="BAR"), "key"),
        ("Unsubscribe", pb.Subscription(key="FOO"), "consumerID"),
        ("Unsubscribe", pb.Subscription(consumerID="BAR"), "key"),
        ("Observe", pb.Identification(), "consumerID"),
        ("Watch", pb.Identification(), "consumerID"),
        ("Publish", pb.PublishRecord(key="k" * 16_385), "key"),
        ("Subscribe", pb.Subscription(key="FOO", consumerID="c" * 16_385), "consumerID"),
        ("Observe", pb.Identification(consumerID="c" * 16_385), "consumerID"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_that_are_empty_or_too_long_are_refused(
    name: str, request_: Any, details: str, client: Client, db: redis.Redis
) -> None:
    call = client.start(name, request_)
    assert call.code() is Status.INVALID_ARGUMENT
    assert call.details().startswith(details)
    assert db.dbsize() == 0


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff", b"\x0a\x7fshort", b"\x0a\x02\xff\xfe", b"\x07", b"{}" * 500],
    ids=["bits", "short", "no-utf8", "no-type", "json"],
)
def test_an_unparsable_request_is_refused(
    name: str, garbage: bytes, client: Client, db: redis.Redis
) -> None:
    call = client.start(name, garbage)
    assert call.code() is Status.INVALID_ARGUMENT
    assert type(CALLS[name]).__name__ in call.details()
    assert db.dbsize() == 0


def test_fields_of_a_later_protocol_are_ignored(client: Client) -> None:
    later = b"\x98\x06\x05\xa2\x06\x03new"
    for name in ("Subscribe", "Publish", "PublishMany"):
        assert client.status(name, CALLS[name].SerializeToString() + later) is Status.OK
    found = client.start("Observe", CALLS["Observe"].SerializeToString() + later)
    assert payloads(found.result()) == [b"1", b"1"]


@pytest.mark.parametrize(
    "path",
    [
        "/routeguide.RouteGuide/Purge",
        "/routeguide.RouteGuide/publish",
        "/routeguide.RouteGuide/",
        "/routeguide.Nothing/Publish",
        "/Publish",
        "/routeguide.RouteGuide/Publish?x=1",
        "/routeguide.RouteGuide/%50ublish",
    ],
)
def test_a_call_that_does_not_exist_is_unimplemented(path: str, client: Client) -> None:
    call: Any = client.channel.unary_unary(path, None, None).future(b"", timeout=WITHIN_S)
    assert call.code() is Status.UNIMPLEMENTED
    is_served(client)


@pytest.mark.parametrize("zipped", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_understood(
    zipped: grpc.Compression, broker: Broker, dial: Dial
) -> None:
    client = dial(broker, compression=zipped)
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"0" * 100_000)
    assert client.observe("BAR") == [b"0" * 100_000]


# ── sizes ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["Publish", "PublishMany"])
def test_a_request_above_4_mib_is_refused(name: str, client: Client, db: redis.Redis) -> None:
    record = pb.PublishRecord(key="FOO", payload=bytes(5 << 20))
    request = record if name == "Publish" else pb.PublishRecords(records=[record])
    assert client.status(name, request) is Status.RESOURCE_EXHAUSTED
    assert db.dbsize() == 0
    is_served(client)


def test_a_compressed_request_that_grows_above_4_mib_is_refused(broker: Broker, dial: Dial) -> None:
    client = dial(broker, compression=grpc.Compression.Gzip)
    record = pb.PublishRecord(key="FOO", payload=bytes(5 << 20))
    assert client.status("Publish", record) is Status.RESOURCE_EXHAUSTED
    is_served(client)


def test_a_payload_that_fits_in_a_request_but_in_no_reply_is_refused(
    client: Client, db: redis.Redis
) -> None:
    record = pb.PublishRecord(key="FOO", payload=bytes(LIMIT - 32))
    assert record.ByteSize() <= LIMIT
    call = client.start("Publish", record)
    assert call.code() is Status.RESOURCE_EXHAUSTED
    assert "FOO" in call.details()
    assert db.dbsize() == 0


def test_the_longest_payloads_arrive_one_by_one_at_a_client_with_the_usual_limit(
    client: Client,
) -> None:
    longest = LIMIT - len("FOO") - 128
    wanted = [bytes([n]) * longest for n in (1, 2)]
    client.subscribe("FOO", "BAR")
    client.publish("FOO", *wanted)
    assert client.observe("BAR") == wanted[:1]
    assert client.observe("BAR") == wanted[1:]


def test_a_watcher_is_given_the_longest_payloads_too(client: Client) -> None:
    longest = LIMIT - len("FOO") - 128
    client.subscribe("FOO", "BAR")
    client.publish("FOO", *(bytes([n]) * longest for n in (1, 2, 3)))
    watching = client.watch("BAR")
    assert [payloads(next(watching))[0][:1] for _ in range(3)] == [b"\1", b"\2", b"\3"]


# ── metadata ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "words",
    [
        {"x_gomq_peer": ""},
        {"x_gomq_peer": "127.0.0.1:5467"},
        {"x_gomq_peer": "p" * 129},
        {"x_gomq_max": "many"},
        {"x_gomq_max": "-1"},
        {"x_gomq_max": "1" * 10},
    ],
    ids=lambda words: str(words)[:30],
)
def test_malformed_metadata_is_refused_at_every_call(
    name: str, words: dict[str, Any], client: Client, db: redis.Redis
) -> None:
    call = client.start(name, CALLS[name], **words)
    assert call.code() is Status.INVALID_ARGUMENT
    (word,) = words
    assert word.replace("_", "-") in call.details()
    assert db.dbsize() == 0


def test_metadata_of_others_is_ignored(client: Client) -> None:
    others = {"x_request_id": "7", "user_agent": "me", "x_gomq_later": ":", "cookie": "a=b"}
    for name in ("Subscribe", "Publish", "Observe"):
        assert client.start(name, CALLS[name], **cast("Any", others)).code() is Status.OK


@pytest.mark.parametrize(
    "word", ["", "Bearer", "Bearer ", "Bearer open", "Bearer open sesame!", "Basic open sesame"]
)
def test_a_wrong_token_is_refused_before_anything_else(
    word: str, guarded: Broker, dial: Dial, db: redis.Redis
) -> None:
    client = dial(guarded)
    for name, request in CALLS.items():
        call = client.start(name, request, authorization=word)
        assert call.code() is Status.UNAUTHENTICATED
    assert client.start("Publish", b"\xff", authorization=word).code() is Status.UNAUTHENTICATED
    assert db.dbsize() == 0
    good = client.start("Publish", CALLS["Publish"], authorization="Bearer open sesame")
    assert good.code() is Status.OK


@pytest.fixture
def guarded(serve: Serve) -> Broker:
    """A broker with a token."""
    return serve(token="open sesame")


# ── what is in the way ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("QUEUE_FOO", ["Publish", "PublishMany", "Unsubscribe"]),
        ("CONSUMERS_FOO", ["Subscribe", "Unsubscribe"]),
        ("SUBSCRIPTIONS_BAR", ["Subscribe", "Unsubscribe", "Observe", "Watch"]),
        ("PEERS_BAR", ["Subscribe", "Unsubscribe", "Observe", "Watch"]),
        ("SUBSCRIBED_KEYS", ["Subscribe", "Unsubscribe"]),
        ("TALLY_FOO", ["Subscribe", "Unsubscribe"]),
    ],
)
def test_a_key_of_another_type_is_a_failed_precondition_and_blocks_no_other(
    key: str, names: list[str], client: Client, broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    db.sadd("SUBSCRIPTIONS_BAR", "FOO")
    db.delete(key)
    db.hset(key, "a", "b") if key != "TALLY_FOO" else db.set(key, "b")
    before = {each: db.dump(each) for each in cast("list[bytes]", db.keys())}
    for name in names:
        assert client.status(name, CALLS[name]) is Status.FAILED_PRECONDITION, name
    assert {each: db.dump(each) for each in cast("list[bytes]", db.keys())} == before
    if key != "SUBSCRIBED_KEYS":
        is_served(dial(broker))


def test_a_dedicated_queue_of_another_type_is_a_failed_precondition_until_it_is_gone(
    client: Client, db: redis.Redis
) -> None:
    for key in ("FOO", "BAZ"):
        client.subscribe(key, "BAR")
    (peer,) = cast("set[bytes]", db.smembers("PEERS_BAR"))
    db.set(b"MESSAGES_FOO_BAR_" + peer, "no list")
    client.publish("FOO", b"1")
    client.publish("BAZ", b"2")
    assert client.status("Observe", CALLS["Observe"]) is Status.FAILED_PRECONDITION
    assert db.llen("QUEUE_FOO") == db.llen(b"MESSAGES_BAZ_BAR_" + peer) == 1
    db.delete(b"MESSAGES_FOO_BAR_" + peer)
    eventually(lambda: not db.exists("QUEUE_FOO"), within_s=WITHIN_S)
    assert sorted(client.observe("BAR")) == [b"1", b"2"]


@pytest.mark.parametrize(
    "element",
    [b"", b"no json", b"[]", b'{"payload": 7}', b'{"payload": "?"}', b"\xff", b"[" * 10_000],
    ids=["empty", "text", "list", "number", "no-base64", "no-utf8", "deep"],
)
def test_an_invalid_element_is_delivered_as_an_empty_record(
    element: bytes, client: Client, db: redis.Redis
) -> None:
    client.publish("FOO", b"before")
    db.rpush("QUEUE_FOO", element)
    client.publish("FOO", b"after")
    client.subscribe("FOO", "BAR")
    found = client.start("Observe", CALLS["Observe"]).result().records
    assert [record.value.payload for record in found] == [b"before", b"", b"after"]
    assert found[1] == pb.Record(key="FOO", value=pb.Message())


# ── bytes ────────────────────────────────────────────────────────────────────


def test_a_connection_that_is_not_http2_is_closed_without_harm_to_others(
    broker: Broker, client: Client
) -> None:
    for garbage in (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\0" * 64, b"PRI * HTTP/2.0\r\n\r\nNO"):
        with transports.raw_socket(broker.address) as line:
            line.sendall(garbage)
            line.shutdown(1)
            while line.recv(1 << 16):
                pass
    is_served(client)


def test_a_caller_that_hangs_up_within_its_request_publishes_nothing(
    broker: Broker, client: Client, db: redis.Redis
) -> None:
    request = CALLS["Publish"].SerializeToString()
    for _ in range(5):
        with by_hand(broker.address, "Publish", request, ends=False):
            pass
    is_served(client)
    assert not db.exists("QUEUE_FOO")


def test_a_full_journal_is_a_resource_that_is_exhausted(
    serve: Serve, dial: Dial, server: Server
) -> None:
    client = dial(serve(journal=("FOO",), journal_bounds=JournalBounds(max_entries=2)))
    client.publish("FOO", b"1")
    client.publish("FOO", b"2")
    third = pb.PublishRecord(key="FOO", payload=b"3")
    assert client.status("Publish", third) is Status.RESOURCE_EXHAUSTED
    client.publish("BAR", b"3")
    assert bodies(server.url, "gomq", "FOO") == [b"1", b"2"]
