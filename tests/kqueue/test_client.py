"""Blocking and asyncio producers and consumers, with a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tambomq.errors import (
    InvalidBody,
    InvalidFormat,
    InvalidValue,
    MessageTooLong,
    RemoteProtocolError,
)
from tambomq.kqueue import Limits, Message
from tests.kqueue.naive import message, subscribe
from tests.kqueue.serving import Served
from tests.kqueue.twins import consuming, has_subscriptions, producing, silent_server


@pytest.fixture
def served() -> Iterator[Served]:
    with Served("asyncio") as server:
        yield server


# ── sending and receiving ────────────────────────────────────────────────────


def test_sent_messages_are_received(served: Served, producer: Any, consumer: Any) -> None:
    consumer.subscribe("a", b"b")
    has_subscriptions(served, 2)
    producer.send("a", "text")
    producer.send(b"b", b"\x00bytes")
    producer.send("c", "without subscriber")
    producer.send("a", "")
    assert [consumer.receive(5) for _ in range(3)] == [
        Message(b"a", b"text"),
        Message(b"b", b"\x00bytes"),
        Message(b"a", b""),
    ]
    assert consumer.receive(0) is None


def test_subscriptions_can_be_added_and_removed(
    served: Served, producer: Any, consumer: Any
) -> None:
    consumer.subscribe("a", "b", "c")
    consumer.subscribe_all()
    has_subscriptions(served, 4)
    consumer.unsubscribe("a", "b")
    has_subscriptions(served, 2)
    producer.send("other", "1")
    assert consumer.receive(5) == Message(b"other", b"1")
    consumer.unsubscribe_all()
    consumer.subscribe("b")
    has_subscriptions(served, 1)
    producer.send_many([("a", "2"), ("c", "3"), ("", "4"), ("b", "5")])
    assert consumer.receive(5) == Message(b"b", b"5")


def test_many_messages_are_sent_from_any_iterable_and_counted(
    served: Served, producer: Any, consumer: Any
) -> None:
    count = 10_000
    consumer.subscribe("a")
    has_subscriptions(served, 1)
    sent: list[int] = []
    sending = threading.Thread(
        target=lambda: sent.append(
            producer.send_many(("a", b"%050d" % number) for number in range(count))
        )
    )
    sending.start()
    received = [int(each.body) for each in islice(iter(consumer), count)]
    sending.join()
    assert sent == [count]
    assert received == list(range(count))
    assert producer.send_many([]) == 0


def test_a_long_message_arrives_complete(kind: str) -> None:
    body = bytes(range(256)) * 60_000
    with (
        Served("uvloop", slow="block") as served,
        consuming(kind, served.port) as consumer,
        producing(kind, served.port) as producer,
    ):
        consumer.subscribe("a")
        has_subscriptions(served, 1)
        sending = threading.Thread(target=producer.send, args=("a", body))
        sending.start()
        assert consumer.receive(20) == Message(b"a", body)
        sending.join()


def test_a_timeout_loses_no_bytes(kind: str) -> None:
    frame = message(b"a", b"slowly")
    with silent_server() as (listening, port), consuming(kind, port) as consumer:
        consumer.subscribe("a")
        connection, _ = listening.accept()
        with connection:
            for byte in frame[:-1]:
                connection.sendall(bytes((byte,)))
                assert consumer.receive(0.002) is None
            connection.sendall(frame[-1:] + frame)
            assert consumer.receive(5) == consumer.receive(5) == Message(b"a", b"slowly")


def test_threads_share_a_producer(served: Served, consumer: Any) -> None:
    consumer.subscribe("a")
    has_subscriptions(served, 1)
    with producing("threads", served.port) as producer:
        threads = [
            threading.Thread(target=lambda: [*map(producer.send, "a" * 200, [b"x" * 10] * 200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        bodies = {consumer.receive(10).body for _ in range(800)}
        for thread in threads:
            thread.join()
    assert bodies == {b"x" * 10}


def test_ok_replies_of_a_server_are_skipped(kind: str) -> None:
    with (
        Served("asyncio", ok_replies=True, max_buffer_bytes=20_000) as served,
        consuming(kind, served.port) as consumer,
        producing(kind, served.port) as producer,
    ):
        consumer.subscribe("a")
        has_subscriptions(served, 1)
        # Far more replies than buffers hold for a producer that does not read them.
        assert producer.send_many(("b", "") for _ in range(500_000)) == 500_000
        producer.send("a", "1")
        assert consumer.receive(10) == Message(b"a", b"1")
        consumer.unsubscribe("a")
        consumer.subscribe("b")
        has_subscriptions(served, 1)
        producer.send("b", "2")
        assert consumer.receive(10) == Message(b"b", b"2")
        assert served.stats.disconnected == 0


def test_messages_sent_before_closing_are_read_although_replies_are_unread(kind: str) -> None:
    with Served("asyncio", ok_replies=True) as served:
        for number in range(1, 6):
            with producing(kind, served.port) as producer:
                producer.send_many(("a", "") for _ in range(50_000))
            # The server has read all of it, or has it in its socket buffer.
            served.comes_to(lambda stats: stats.producers == 0)
            assert served.stats.received == number * 50_000


# ── invalid input ────────────────────────────────────────────────────────────


def test_an_invalid_message_is_refused_and_the_connection_stays_usable(
    served: Served, producer: Any, consumer: Any
) -> None:
    consumer.subscribe("a")
    has_subscriptions(served, 1)
    with pytest.raises(InvalidBody):
        producer.send("a", 5)
    with pytest.raises(InvalidFormat):
        producer.send(None, "")
    with pytest.raises(InvalidValue, match="at most 65536 bytes"):
        producer.send("x" * 70_000, "")
    with pytest.raises(MessageTooLong):
        producer.send("a", b"x" * ((16 << 20) + 1))
    with pytest.raises(InvalidBody):
        producer.send_many([("a", "1"), ("a", "2"), ("a", None), ("a", "3")])
    producer.send("a", "4")
    assert [consumer.receive(5).text for _ in range(3)] == ["1", "2", "4"]


def test_subscribing_to_no_queue_is_refused(served: Served, consumer: Any) -> None:
    for verb in ("subscribe", "unsubscribe"):
        with pytest.raises(InvalidValue, match=f"{verb}_all"):
            getattr(consumer, verb)()
        with pytest.raises(InvalidFormat, match=f"{verb}_all"):
            getattr(consumer, verb)("a", "")
        with pytest.raises(InvalidFormat):
            getattr(consumer, verb)("a", 5)
    consumer.subscribe("b")
    has_subscriptions(served, 1)


def test_a_client_may_have_the_limits_of_its_server(kind: str) -> None:
    limits = Limits(name_bytes=2, message_bytes=20_000_000)
    with (
        Served("asyncio", limits=limits, slow="block") as served,
        consuming(kind, served.port, limits=limits) as consumer,
        producing(kind, served.port, limits=limits) as producer,
    ):
        with pytest.raises(InvalidValue, match="at most 2 bytes"):
            consumer.subscribe("abc")
        consumer.subscribe("ab")
        has_subscriptions(served, 1)
        sending = threading.Thread(target=producer.send, args=("ab", b"x" * 17_000_000))
        sending.start()
        assert len(consumer.receive(20).body) == 17_000_000  # type: ignore[union-attr]  # (or it fails)
        sending.join()


def test_invalid_bytes_from_a_server_raise_after_the_messages_before_them(kind: str) -> None:
    with silent_server() as (listening, port), consuming(kind, port) as consumer:
        consumer.subscribe("a")
        connection, _ = listening.accept()
        with connection:
            connection.sendall(message(b"a", b"1") + b"?")
            assert consumer.receive(5) == Message(b"a", b"1")
            with pytest.raises(RemoteProtocolError):
                consumer.receive(5)
        # The next call reconnects and restores the subscriptions.
        assert consumer.receive(0) is None
        connection, _ = listening.accept()
        with connection:
            expected = b"consume" + subscribe(b"a")
            assert connection.recv(len(expected), socket.MSG_WAITALL) == expected
