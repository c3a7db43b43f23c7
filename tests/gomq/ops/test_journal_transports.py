"""Journal entries of messages that clients have received, over both transports."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.gomq import gomq_pb2 as pb
from tests.gomq import transports
from tests.gomq.transports import Broker, Client, Dial, Serve, payloads
from tests.journal.looking import records
from tests.servers import Server

brokers, transport, broker, serve, dial = transports.fixtures


@pytest.fixture
def recorder(serve: Serve, dial: Dial) -> Client:
    """A client of a broker where some keys have a journal."""
    return dial(serve(journal=("FO*",)))


def journalled(server: Server, key: str = "FOO") -> list[tuple[str, bytes | None, str]]:
    """Return what a journal says: events, bodies and consumers."""
    return [(each.event, each.body, each.name) for each in records(server.url, "gomq", key)]


CONSUMER = pb.Identification(consumerID="BAR")
SENT: list[tuple[str, bytes | None, str]] = [("sent", b"1", ""), ("sent", b"2", "")]
DELIVERED: list[tuple[str, bytes | None, str]] = [("delivered", None, "BAR")] * 2


def test_an_observed_message_is_journalled_once_after_it_was_sent(
    recorder: Client, server: Server
) -> None:
    recorder.subscribe("FOO", "BAR")
    recorder.publish("FOO", b"1", b"2")
    assert journalled(server) == SENT
    assert recorder.observed("BAR", 2) == [b"1", b"2"]
    assert recorder.observe("BAR") == []
    assert journalled(server) == SENT + DELIVERED
    ids = [each.id for each in records(server.url, "gomq", "FOO")]
    assert ids[:2] == ids[2:]


def test_a_kept_batch_is_journalled_when_it_is_acknowledged(
    recorder: Client, server: Server
) -> None:
    me: dict[str, Any] = {"x_gomq_peer": "me"}
    recorder.subscribe("FOO", "BAR", **me)
    recorder.publish("FOO", b"1", b"2")
    for _ in range(2):
        assert recorder.observe("BAR", **me, x_gomq_ack="") == [b"1", b"2"]
    call = recorder.start("Observe", CONSUMER, **me, x_gomq_ack="")
    batch = dict(call.initial_metadata())["x-gomq-batch"]
    assert journalled(server) == SENT
    for _ in range(2):
        assert recorder.observe("BAR", **me, x_gomq_ack=batch, x_gomq_max="0") == []
        assert journalled(server) == SENT + DELIVERED


def test_pushed_messages_are_journalled(recorder: Client, server: Server) -> None:
    recorder.subscribe("FOO", "BAR")
    recorder.publish("FOO", b"1", b"2")
    watching = recorder.watch("BAR")
    assert payloads(next(watching)) == [b"1", b"2"]
    assert journalled(server) == SENT + DELIVERED
    watching.cancel()


def test_a_key_without_a_journal_has_none(recorder: Client, db: redis.Redis) -> None:
    recorder.subscribe("OTHER", "BAR")
    recorder.publish("OTHER", b"1")
    assert recorder.observed("BAR", 1) == [b"1"]
    assert list(db.scan_iter("{tambo*")) == []


def test_a_broker_without_journals_leaves_none_behind(
    broker: Broker, dial: Dial, db: redis.Redis
) -> None:
    client = dial(broker)
    client.subscribe("FOO", "BAR")
    client.publish("FOO", b"1")
    assert client.observe("BAR", x_gomq_peer="me", x_gomq_ack="") == []
    assert client.observe("BAR") == [b"1"]
    client.unsubscribe("FOO", "BAR")
    assert list(db.scan_iter("{tambo*")) == []
