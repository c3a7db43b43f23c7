"""A server and its clients: delivery, order, replies and disconnects."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest

from tambomq.errors import BrokerUnavailable, InvalidValue
from tambomq.kqueue import KqueueServer, Limits
from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message, pieces, subscribe, u32, unsubscribe
from tests.kqueue.serving import Served

# ── delivery ─────────────────────────────────────────────────────────────────


def test_a_message_goes_to_every_subscriber_of_its_queue_and_to_no_other_consumer(
    served: Served,
) -> None:
    with (
        served.consumer(b"a") as one,
        served.consumer(b"a", b"b") as two,
        served.consumer(b"b") as three,
        served.producer() as producer,
    ):
        producer.send((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"a", b"4"), (b"b", b"5"))
        assert one.messages(2) == [(b"a", b"1"), (b"a", b"4")]
        assert two.messages(4) == [(b"a", b"1"), (b"b", b"2"), (b"a", b"4"), (b"b", b"5")]
        assert three.messages(2) == [(b"b", b"2"), (b"b", b"5")]
    size = len(message(b"a", b"1"))
    stats = served.stats
    assert (stats.received, stats.delivered, stats.unrouted) == (5, 8, 1)
    assert (stats.received_bytes, stats.delivered_bytes) == (5 * size, 8 * size)


def test_a_subscriber_of_all_queues_gets_each_message_once(served: Served) -> None:
    with served.consumer(b"", b"a") as consumer, served.producer() as producer:
        producer.send((b"a", b"1"), (b"never heard of", b"2"), (b"a", b"3"))
        assert [body for _, body in consumer.messages(3)] == [b"1", b"2", b"3"]
    served.comes_to(lambda stats: (stats.delivered, stats.unrouted) == (3, 0))


def test_a_message_without_a_name_reaches_subscribers_of_all_queues_only(served: Served) -> None:
    with (
        served.consumer(b"") as everything,
        served.consumer(b"a") as named,
        served.producer() as producer,
    ):
        producer.send((b"", b"nameless"), (b"a", b"named"))
        assert everything.messages(2) == [(b"", b"nameless"), (b"a", b"named")]
        assert named.message() == (b"a", b"named")


def test_messages_of_one_producer_arrive_in_their_order(served: Served) -> None:
    count, producers = 3000, 3
    with served.consumer(b"x", b"y") as consumer, ExitStack() as open_clients:
        for number in range(producers):
            client = open_clients.enter_context(served.producer())
            sent = [(b"xy"[i % 2 :][:1], b"%d %d" % (number, i)) for i in range(count)]
            threading.Thread(target=client.send, args=sent).start()
        seen: dict[bytes, list[int]] = {}
        for _, body in consumer.messages(count * producers):
            sender, number_sent = body.split()
            seen.setdefault(sender, []).append(int(number_sent))
    assert seen == {b"%d" % number: list(range(count)) for number in range(producers)}


def test_a_consumer_has_no_message_from_before_it_subscribed(served: Served) -> None:
    with served.producer() as producer:
        producer.send((b"a", b"early"))
        served.comes_to(lambda stats: stats.unrouted == 1)
        with served.consumer(b"a") as consumer:
            producer.send((b"a", b"late"))
            assert consumer.message() == (b"a", b"late")


def test_unsubscribing_from_one_queue_keeps_the_others(served: Served) -> None:
    with served.consumer(b"a", b"b") as consumer, served.producer() as producer:
        consumer.send_bytes(unsubscribe(b"a"), unsubscribe(b"unknown"))
        served.comes_to(lambda stats: stats.subscriptions == 1)
        producer.send((b"a", b"1"), (b"b", b"2"))
        assert consumer.message() == (b"b", b"2")


def test_unsubscribing_from_one_queue_does_not_affect_a_subscription_to_all(served: Served) -> None:
    with served.consumer(b"", b"a") as consumer, served.producer() as producer:
        consumer.send_bytes(unsubscribe(b"a"))
        served.comes_to(lambda stats: stats.subscriptions == 1)
        producer.send((b"a", b"1"))
        assert consumer.message() == (b"a", b"1")


def test_unsubscribing_without_a_name_ends_everything(served: Served) -> None:
    with served.consumer(b"", b"a", b"b") as consumer, served.producer() as producer:
        consumer.send_bytes(unsubscribe(b""), subscribe(b"c"))
        served.comes_to(lambda stats: stats.subscriptions == 1)
        producer.send((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
        assert consumer.message() == (b"c", b"3")


@pytest.mark.parametrize("reset", [False, True])
def test_a_consumer_that_disconnects_is_unsubscribed(served: Served, reset: bool) -> None:
    with served.consumer(b"a") as stays, served.producer() as producer:
        served.consumer(b"a", b"").close(reset=reset)
        served.comes_to(lambda stats: (stats.subscriptions, stats.consumers) == (1, 1))
        producer.send((b"a", b"1"))
        assert stays.message() == (b"a", b"1")
    served.comes_to(lambda stats: stats.connections == stats.producers == stats.consumers == 0)
    assert served.stats.delivered == 1


def test_bytes_may_come_one_by_one(served: Served) -> None:
    words = b"consume" + subscribe(b"a")
    with served.connect() as consumer, served.connect() as producer:
        for byte in pieces(words, list(range(len(words)))):
            consumer.send_bytes(byte)
        served.comes_to(lambda stats: stats.subscriptions == 1)
        data = b"produce" + message(b"a", b"slowly") + message(b"a", b"")
        for byte in pieces(data, list(range(len(data)))):
            producer.send_bytes(byte)
        assert consumer.messages(2) == [(b"a", b"slowly"), (b"a", b"")]


def test_a_message_may_be_as_long_as_the_limit(serve: Serve) -> None:
    # Longer than the write buffer too: the next message has to wait.
    served = serve(slow="block")
    name, body = b"n" * 65536, bytes(range(256)) * 65536
    with served.consumer(name) as consumer, served.producer() as producer:
        sending = threading.Thread(target=producer.send, args=((name, body), (name, b"next")))
        sending.start()
        assert consumer.message() == (name, body)
        assert consumer.message() == (name, b"next")
        sending.join()


# ── disconnects ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense",
        b"produce?",
        b"produce" + subscribe(b"a"),
        b"consume" + message(b"a", b"1"),
        b"consume*",
        b"produce*" + u32(65537),
        b"consume>" + u32(1 << 31),
        b"produce*" + u32(1) + b"a" + u32((1 << 24) + 1),
    ],
)
def test_a_protocol_error_closes_the_connection_of_its_client_alone(
    served: Served, data: bytes
) -> None:
    with (
        served.consumer(b"a") as consumer,
        served.producer() as producer,
        served.connect(data) as bad,
    ):
        assert bad.is_closed()
        producer.send((b"a", b"still here"))
        assert consumer.message() == (b"a", b"still here")
        served.comes_to(lambda stats: stats.connections == 2)
    assert served.stats.protocol_errors == 1


def test_messages_before_a_bad_frame_are_delivered(served: Served) -> None:
    with served.consumer(b"a") as consumer, served.producer() as producer:
        producer.send_bytes(message(b"a", b"1"), message(b"a", b"2"), b"garbage")
        assert consumer.messages(2) == [(b"a", b"1"), (b"a", b"2")]
        assert producer.is_closed()


def test_a_consumer_with_too_many_subscriptions_is_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tambomq.kqueue.exchange.MAX_SUBSCRIPTIONS", 3)
    with served.consumer(b"a", b"b", b"c", b"") as modest, served.producer() as producer:
        with served.connect(b"consume", *(subscribe(b"%d" % n) for n in range(4))) as greedy:
            assert greedy.is_closed()
        served.comes_to(lambda stats: (stats.protocol_errors, stats.subscriptions) == (1, 4))
        producer.send((b"0", b"1"))
        assert modest.message() == (b"0", b"1")


def test_limits_are_those_of_the_server(serve: Serve) -> None:
    served = serve(limits=Limits(name_bytes=3, message_bytes=5))
    with served.consumer(b"abc") as consumer, served.producer() as producer:
        producer.send((b"abc", b"12345"), (b"abc", b"123456"))
        assert consumer.message() == (b"abc", b"12345")
        assert producer.is_closed()


def test_beyond_the_limit_a_connection_is_closed_at_once(serve: Serve) -> None:
    served = serve(max_connections=2)
    with served.consumer(b"a") as consumer, served.producer() as producer:
        for _ in range(3):
            with served.connect() as third:
                assert third.is_closed()
        stats = served.stats
        assert (stats.accepted, stats.refused, stats.connections) == (2, 3, 2)
        producer.send((b"a", b"1"))
        assert consumer.message() == (b"a", b"1")
        served.run(served.server.check())
    served.comes_to(lambda stats: stats.connections == 0)
    with served.consumer(b"a"):
        assert served.stats.accepted == 3


@pytest.mark.parametrize("data", [b"", b"produc"])
def test_a_client_without_a_role_is_disconnected_after_a_timeout(serve: Serve, data: bytes) -> None:
    served = serve(handshake_s=0.2)
    with served.consumer(b"a"), served.connect(data) as silent:
        assert silent.is_closed()
        stats = served.stats
        assert (stats.handshake_timeouts, stats.connections) == (1, 1)


def test_single_bytes_do_not_extend_the_handshake_timeout(serve: Serve) -> None:
    served = serve(handshake_s=0.3)
    with served.connect() as dripping:
        for byte in b"prod":
            dripping.send_bytes(bytes((byte,)))
            served.call(lambda: None)
        assert dripping.is_closed()
    served.comes_to(lambda stats: (stats.handshake_timeouts, stats.protocol_errors) == (1, 0))


# ── replies and settings ─────────────────────────────────────────────────────


def test_with_ok_replies_every_frame_is_answered(serve: Serve) -> None:
    served = serve(ok_replies=True)
    with served.connect(b"consume") as consumer, served.connect(b"produce") as producer:
        assert consumer.read(2) == producer.read(2) == b"OK"
        consumer.send_bytes(subscribe(b"a"), unsubscribe(b"b"))
        assert consumer.read(4) == b"OKOK"
        producer.send((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
        assert producer.read(6) == b"OKOKOK"
        assert consumer.messages(2) == [(b"a", b"1"), (b"a", b"3")]
        producer.send_bytes(message(b"a", b"4") + b"?")
        assert producer.read(4) == b"OKOK"
        assert consumer.message() == (b"a", b"4")


def test_with_ok_replies_invalid_bytes_do_not_close_the_connection(serve: Serve) -> None:
    served = serve(ok_replies=True)
    with served.connect(b"consume") as consumer, served.connect(b"produce") as producer:
        assert consumer.read(2) == producer.read(2) == b"OK"
        for junk in (bytes(5), b"hello", message(b"a", b"from a consumer"), b"\xff" * 900):
            consumer.send_bytes(junk)
            assert consumer.read(2) == b"OK"
        consumer.send_bytes(subscribe(b"a"))
        assert consumer.read(2) == b"OK"
        for junk in (bytes(5), subscribe(b"a"), b"*what a long name this would be"):
            producer.send_bytes(junk)
            assert producer.read(2) == b"OK"
        producer.send_bytes(bytes(5) + message(b"a", b"1") + bytes(5) + message(b"a", b"2"))
        assert producer.read(8) == b"OK" * 4
        assert consumer.messages(2) == [(b"a", b"1"), (b"a", b"2")]
    served.comes_to(lambda stats: stats.protocol_errors >= 9)


def test_with_ok_replies_bytes_before_the_role_are_skipped(serve: Serve) -> None:
    served = serve(ok_replies=True)
    with served.connect(bytes(5)) as client:
        assert client.read(2) == b"OK"
        client.send_bytes(b"produce" + message(b"a", b"1"))
        assert client.read(4) == b"OKOK"
        served.comes_to(lambda stats: stats.producers == 1)


def test_with_ok_replies_a_message_beyond_the_limit_still_closes(serve: Serve) -> None:
    served = serve(ok_replies=True, limits=Limits(message_bytes=10))
    with served.connect(b"produce") as producer:
        assert producer.read(2) == b"OK"
        producer.send_bytes(message(b"a", b"*" * 11))
        assert producer.rest() == b""


def test_without_ok_replies_nothing_is_answered(served: Served) -> None:
    with served.consumer(b"a") as consumer, served.producer() as producer:
        producer.send((b"a", b"1")).socket.shutdown(socket.SHUT_WR)
        assert producer.rest() == b""
        assert consumer.message() == (b"a", b"1")


def test_connections_are_kept_alive_and_not_delayed(served: Served) -> None:
    with served.producer():
        served.comes_to(lambda stats: stats.producers == 1)

        def options() -> tuple[int, int]:
            (peer,) = served.peers
            connected = peer._transport.get_extra_info("socket")
            return (
                connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            )

        assert all(served.call(options))


def test_the_error_for_a_taken_port_has_its_address(served: Served, serve: Serve) -> None:
    with pytest.raises(BrokerUnavailable, match=rf"127\.0\.0\.1:{served.port}"):
        serve(port=served.port)


@pytest.mark.parametrize("host", ["256.0.0.1", "no such host", "a..b", "192.0.2.1"])
def test_a_foreign_address_is_an_error(serve: Serve, host: str) -> None:
    with pytest.raises(BrokerUnavailable, match="no server at"):
        serve(host=host)


@pytest.mark.parametrize(
    "option",
    [
        {"slow": "never"},
        {"port": 65536},
        {"max_buffer_bytes": 0},
        {"max_connections": 0},
        {"handshake_s": 0},
    ],
)
def test_impossible_settings_are_refused(option: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(option))):
        KqueueServer(**option)  # type: ignore[arg-type]  # (the mistake itself)
