"""Slow consumers under each policy: the effect on them, on others, and on the counters."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message
from tests.kqueue.serving import Raw, Served

BODY = b"x" * 65_000
FRAME = len(message(b"a", BODY))
BOUND = 1_000_000
# More than the small socket buffers and the server's write buffer hold.
FLOOD = 100


@contextmanager
def never_reading(served: Served, *names: bytes) -> Iterator[Raw]:
    """A consumer that does not read by itself, on a connection with small socket buffers."""
    with served.consumer(*names) as consumer:
        _shrink(served, consumer)
        yield consumer


def flood(served: Served, producer: Raw, name: bytes, count: int = FLOOD) -> None:
    """Send messages one by one, waiting until the server has read each."""
    before = served.stats.received
    for number in range(count):
        producer.send((name, BODY))
        _has_received(served, before + number + 1)


def test_a_slow_consumer_is_disconnected_and_others_get_everything(serve: Serve) -> None:
    served = serve(slow="disconnect", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a") as slow,
        served.consumer(b"b") as quick,
        served.producer() as producer,
    ):
        flood(served, producer, b"a")
        producer.send((b"b", b"1"))
        assert quick.message() == (b"b", b"1")
        served.comes_to(lambda stats: stats.consumers == 1)
        stats = served.stats
        assert (stats.disconnected, stats.dropped, stats.subscriptions) == (1, 0, 1)
        # Later messages had no subscriber: every message is counted.
        assert 0 < stats.delivered - 1 < FLOOD
        assert stats.delivered - 1 + stats.unrouted == FLOOD - 1
        assert len(slow.rest()) <= (stats.delivered - 1) * FRAME


def test_a_slow_consumer_misses_messages_and_each_is_counted(serve: Serve) -> None:
    served = serve(slow="drop", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a") as slow,
        served.consumer(b"a", b"b") as quick,
        served.producer() as producer,
    ):
        for number in range(FLOOD):
            producer.send((b"a", b"%06d" % number + BODY))
            assert quick.message()[1][:6] == b"%06d" % number
        stats = served.stats
        got = 2 * FLOOD - stats.dropped
        assert (stats.delivered, stats.received) == (got, FLOOD)
        assert 0 < stats.dropped < FLOOD
        assert (stats.disconnected, stats.consumers) == (0, 2)
        kept = slow.messages(FLOOD - stats.dropped)
        # Those are missing that found the buffer full. The system may take more later on.
        numbers = [int(body[:6]) for _, body in kept]
        assert numbers == sorted(set(numbers))
        assert (numbers[0], len(numbers)) == (0, FLOOD - stats.dropped)
        producer.send((b"a", b"back again"))
        assert slow.message() == (b"a", b"back again")
    assert served.stats.dropped == stats.dropped


def test_only_the_messages_of_the_slow_consumer_are_dropped_from_a_read(serve: Serve) -> None:
    served = serve(slow="drop", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a", b"b") as slow,
        served.consumer(b"b", b"c") as quick,
        served.producer() as producer,
    ):
        flood(served, producer, b"a")
        before = served.stats
        assert before.dropped
        producer.send((b"b", b"1"), (b"c", b"2"), (b"b", b"3"), (b"a", b"4"), (b"d", b"5"))
        assert [body for _, body in quick.messages(3)] == [b"1", b"2", b"3"]
        served.comes_to(lambda stats: stats.received == before.received + 5)
        after = served.stats
        assert after.dropped - before.dropped == 3
        assert after.delivered - before.delivered == 3
        assert after.delivered_bytes - before.delivered_bytes == 3 * len(message(b"b", b"1"))
        assert after.unrouted - before.unrouted == 1
        assert slow.message()[0] == b"a"


def test_producers_of_a_slow_consumer_are_blocked_and_no_message_is_lost(serve: Serve) -> None:
    served = serve(slow="block", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a") as slow,
        served.consumer(b"b") as quick,
        served.producer() as waiting,
        served.producer() as other,
    ):
        sent, rest = _send_until_blocked(served, waiting)
        other.send((b"b", b"1"))
        assert quick.message() == (b"b", b"1")
        ending = threading.Thread(target=waiting.send_bytes, args=(rest, message(b"a", b"last")))
        ending.start()
        assert slow.read(sent * FRAME) == message(b"a", BODY) * sent
        assert slow.message() == (b"a", b"last")
        ending.join()
        served.comes_to(lambda stats: not served.server._broker.fanout._blocked_by)
        stats = served.stats
        assert (stats.dropped, stats.disconnected, stats.delivered) == (0, 0, sent + 2)


@pytest.mark.parametrize("reset", [False, True])
def test_a_slow_consumer_that_disconnects_unblocks_its_producers(serve: Serve, reset: bool) -> None:
    served = serve(slow="block", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a") as slow,
        served.consumer(b"b") as quick,
        served.producer() as waiting,
    ):
        _, rest = _send_until_blocked(served, waiting)
        slow.close(reset=reset)
        waiting.send_bytes(rest, message(b"b", b"free"))
        assert quick.message() == (b"b", b"free")


def test_a_producer_waits_for_all_of_its_slow_consumers(serve: Serve) -> None:
    served = serve(slow="block", max_buffer_bytes=BOUND)
    with (
        never_reading(served, b"a") as one,
        never_reading(served, b"a") as two,
        served.producer() as waiting,
    ):
        _send_until_blocked(served, waiting)
        fanout = served.server._broker.fanout
        served.comes_to(lambda stats: len(fanout._blocking) == 2)
        before = served.stats
        one.read(before.delivered_bytes // 2)
        served.comes_to(lambda stats: len(fanout._blocking) == 1)
        assert served.stats.received == before.received
        two.close()
        assert one.message() == (b"a", BODY)


def test_blocked_producers_do_not_keep_the_server_from_stopping(serve: Serve) -> None:
    served = serve(slow="block", max_buffer_bytes=BOUND)
    with never_reading(served, b"a"), served.producer() as waiting:
        _send_until_blocked(served, waiting)
        served.run(served.server.stop(0.1))
        stats = served.stats
        assert (stats.connections, stats.subscriptions) == (0, 0)


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_one_message_may_be_longer_than_the_bound(serve: Serve, policy: str) -> None:
    served = serve(slow=policy, max_buffer_bytes=1)
    with served.consumer(b"a") as consumer, served.producer() as producer:
        for number in range(3):
            body = b"%d" % number * 3_000_000
            producer.send((b"a", body))
            assert consumer.message() == (b"a", body)
            # The client may read the last bytes before the server has counted them as sent.
            served.comes_to(lambda stats: not _full(served))
    stats = served.stats
    assert (stats.delivered, stats.dropped, stats.disconnected) == (3, 0, 0)


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_a_client_that_does_not_read_its_replies_is_slow_too(serve: Serve, policy: str) -> None:
    count = 500_000
    served = serve(slow=policy, max_buffer_bytes=10_000, ok_replies=True)
    with served.producer() as producer:
        served.comes_to(lambda stats: stats.producers == 1)
        _shrink(served, producer)
        sending = threading.Thread(target=_say, args=(producer, message(b"a", b"") * count))
        sending.start()
        match policy:
            case "disconnect":
                served.comes_to(lambda stats: (stats.disconnected, stats.connections) == (1, 0))
            case "drop":
                served.comes_to(lambda stats: stats.received == count)
            case "block":
                served.comes_to(lambda stats: bool(served.server._broker.fanout._blocked_by))
                assert producer.read(2 + 2 * count) == b"OK" * (count + 1)
        sending.join()


def _say(producer: Raw, data: bytes) -> None:
    with suppress(ConnectionError):
        producer.send_bytes(data)


def _shrink(served: Served, client: Raw) -> None:
    """Shrink the socket buffers between the server and *client*."""

    def shrink() -> None:
        for peer in served.peers:
            connected = peer._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)

    served.call(shrink)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)


def _has_received(served: Served, count: int) -> None:
    served.comes_to(lambda stats: stats.received == count)


def _full(served: Served) -> bool:
    return served.call(lambda: any(peer.full for peer in served.peers))


def _send_until_blocked(served: Served, producer: Raw) -> tuple[int, bytes]:
    """Send until the server stops reading; return how many, and the unsent rest of the last."""
    producer.socket.settimeout(0.05)
    frame, sent, rest = memoryview(message(b"a", BODY)), 0, memoryview(b"")
    while True:
        if not rest:
            rest, sent = frame, sent + 1
        try:
            rest = rest[producer.socket.send(rest) :]
        except TimeoutError:
            if served.call(lambda: bool(served.server._broker.fanout._blocked_by)):
                producer.socket.settimeout(60)
                return sent, bytes(rest)
