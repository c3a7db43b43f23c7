"""Foreign clients that err, give up, or come in a crowd: their errors, and their messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tambomq.gomq.client import GomqClient
from tests.gomq import transports
from tests.gomq.transports import WITHIN_S, Broker, Serve
from tests.peers.driver import PeerError
from tests.peers.gomq import SERVICE, BufCurl, Connected, GrpcJs
from tests.servers import eventually

pytestmark = pytest.mark.interop

brokers, transport, broker, serve, dial = transports.fixtures

PUBLISHERS, MESSAGES = 20, 500
BAD: list[tuple[str, Any, dict[str, str], str]] = [
    ("Publish", {"payload": "MQ=="}, {}, "INVALID_ARGUMENT"),
    ("PublishMany", {"records": [{"key": "k"}, {}]}, {}, "INVALID_ARGUMENT"),
    ("Subscribe", {"key": "k"}, {}, "INVALID_ARGUMENT"),
    ("Unsubscribe", {"consumerID": "c"}, {}, "INVALID_ARGUMENT"),
    ("Observe", {}, {}, "INVALID_ARGUMENT"),
    ("Observe", {"consumerID": "c"}, {"x_gomq_peer": "a:b"}, "INVALID_ARGUMENT"),
    ("Observe", {"consumerID": "c"}, {"x_gomq_max": "all"}, "INVALID_ARGUMENT"),
    ("Publish", {"key": "broken"}, {}, "FAILED_PRECONDITION"),
    ("Publish", {"key": "k", "payload": "A" * (6 << 20)}, {}, "RESOURCE_EXHAUSTED"),
]


@pytest.fixture(scope="module")
def grpc_js() -> Iterator[GrpcJs]:
    """The process that grpc-js runs in."""
    with GrpcJs() as process:
        yield process


@pytest.fixture
def js(broker: Broker, grpc_js: GrpcJs) -> Iterator[Connected]:
    """A client of grpc-js."""
    client = grpc_js.connect(broker.address)
    yield client
    client.close()
    eventually(lambda: broker.watchers() == 0, within_s=WITHIN_S)


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


# ── statuses ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("method", "request_", "words", "status"), BAD, ids=name_of)
def test_grpc_js_gets_statuses_with_details(
    method: str, request_: Any, words: Any, status: str, js: Connected, db: redis.Redis
) -> None:
    db.set("QUEUE_broken", "no list")
    with pytest.raises(PeerError) as refused:
        js.call(method, request_, **words)
    assert refused.value.code == status
    js.publish("still-here", b"1")
    assert set(db.keys()) == {b"QUEUE_broken", b"QUEUE_still-here"}


@pytest.mark.parametrize(("method", "request_", "words", "status"), BAD[:-1], ids=name_of)
def test_buf_curl_gets_statuses_with_details(
    method: str, request_: Any, words: Any, status: str, broker: Broker, db: redis.Redis
) -> None:
    db.set("QUEUE_broken", "no list")
    with pytest.raises(PeerError) as refused:
        BufCurl(broker.address).call(method, request_, **words)
    assert refused.value.code == status.lower()
    assert db.keys() == [b"QUEUE_broken"]


def test_buf_curl_needs_the_token_for_calls_and_for_reflection(serve: Serve) -> None:
    buf = BufCurl(serve(token="open-sesame").address)
    record, word = {"key": "FOO", "payload": "MQ=="}, "Bearer open-sesame"
    with pytest.raises(PeerError) as refused:
        buf.call("Publish", record)
    assert refused.value.code == "unauthenticated"
    with pytest.raises(PeerError, match=SERVICE):
        buf.call("Publish", record, "--reflect", authorization=word)
    reflected = ("--reflect", "--reflect-header", f"authorization: {word}")
    assert buf.call("Publish", record, *reflected, authorization=word) == {}


# ── calls that are given up ──────────────────────────────────────────────────


def test_grpc_js_gets_deadline_exceeded(js: Connected) -> None:
    js.subscribe("FOO", "BAR")
    js.begin_to_watch("BAR", deadline_ms=200)
    assert js.ended() == "DEADLINE_EXCEEDED"
    with pytest.raises(PeerError) as refused:
        js.call("Observe", {"consumerID": "BAR"}, deadline_ms=0)
    assert refused.value.code == "DEADLINE_EXCEEDED"
    js.publish("FOO", b"1")


def test_a_stream_that_grpc_js_cancels_is_forgotten_and_what_comes_then_waits(
    js: Connected, broker: Broker
) -> None:
    me: dict[str, Any] = {"x_gomq_peer": "me"}
    js.subscribe("FOO", "BAR", **me)
    js.begin_to_watch("BAR", **me)
    eventually(lambda: broker.watchers() == 1, within_s=WITHIN_S)
    js.unwatch()
    assert js.ended() == "CANCELLED"
    eventually(lambda: broker.watchers() == 0, within_s=WITHIN_S)
    js.publish("FOO", b"1")
    assert [record.payload for record in js.observe("BAR", **me)] == [b"1"]


def test_calls_that_grpc_js_cancels_lose_nothing_that_is_acknowledged(js: Connected) -> None:
    me = {"x_gomq_peer": "me", "x_gomq_ack": ""}
    js.subscribe("FOO", "BAR", x_gomq_peer="me")
    for number in range(20):
        js.publish("FOO", str(number))
        with pytest.raises(PeerError) as refused:
            js.give_up("Observe", {"consumerID": "BAR"}, **me)
        assert refused.value.code == "CANCELLED"
    found: list[bytes] = []
    batch = ""
    while len(found) < 20:
        words = {"x_gomq_peer": "me", "x_gomq_ack": batch}
        records, metadata = js.observe_with_metadata("BAR", **words)
        found += [record.payload for record in records]
        batch = metadata["x-gomq-batch"]
    assert found == [b"%d" % number for number in range(20)]


# ── a crowd ──────────────────────────────────────────────────────────────────


def in_order(texts: list[str]) -> bool:
    """Whether each publisher's numbers are all there, once, and grow."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for text in texts:
        name, number = text.split()
        numbers[name].append(int(number))
    return len(numbers) == PUBLISHERS and all(
        found == list(range(MESSAGES)) for found in numbers.values()
    )


def test_messages_of_many_publishers_reach_all_observers_and_watchers(
    broker: Broker, grpc_js: GrpcJs, db: redis.Redis
) -> None:
    total = PUBLISHERS * MESSAGES
    with GrpcJs() as readers, GomqClient(broker.address) as ours:
        jobs: list[dict[str, object]] = []
        for name in ("watcher", "observer"):
            readers.connect(broker.address, name).subscribe("FOO", name)
            how: dict[str, object] = {"count": total, "watches": name == "watcher"}
            jobs.append({"client_id": name, "consumer": name, **how})
        ours.subscribe("FOO", "ours")
        names = [f"publisher-{n}" for n in range(PUBLISHERS)]
        writers = [grpc_js.connect(broker.address, name) for name in names]
        with ThreadPoolExecutor(2) as threads:
            theirs = threads.submit(readers.collect_all, jobs)
            published = threads.submit(grpc_js.publish_all, names, "FOO", MESSAGES)
            found: list[str] = []

            def has_all() -> bool:
                found.extend(record.text for record in ours.observe("ours"))
                return len(found) >= total

            eventually(has_all, within_s=45)
            published.result(WITHIN_S)
            received = theirs.result(WITHIN_S)
        assert ours.observe("ours") == []
    for writer in writers:
        writer.close()
    for texts in (found, *received):
        assert in_order(texts)
    assert not db.exists("QUEUE_FOO")
    eventually(lambda: broker.watchers() == 0, within_s=WITHIN_S)
