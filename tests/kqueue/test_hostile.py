"""Hostile and crashing clients: they gain nothing, and no other client is affected.

After each of them the server has forgotten everything about them, and has logged no failure.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeAlias

import pytest

from tambomq.errors import BrokerUnavailable
from tambomq.kqueue import Consumer, Message, Producer
from tests.kqueue.naive import message, subscribe, u32, unsubscribe
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw
from tests.kqueue.twins import KINDS, consuming, producing
from tests.servers import eventually

KIB, MIB = 1 << 10, 1 << 20
# Memory that the allocator may keep.
SPARE_BYTES = 12 * MIB

Start: TypeAlias = Callable[..., ServerProcess]


@pytest.fixture(params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """A function that starts a server; all are checked at the end of the test."""
    with ExitStack() as running:

        def begin(**options: Any) -> ServerProcess:
            return running.enter_context(ServerProcess(request.param, **options))

        yield begin


class Pair:
    """An honest producer and an honest consumer."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self._producer, self._consumer, self.sent = producer, consumer, 0

    def exchange(self, count: int = 20) -> None:
        """Send *count* messages, and check that all arrive in order."""
        bodies = [b"%d" % number for number in range(self.sent, self.sent + count)]
        self._producer.send_many(("honest", body) for body in bodies)
        for body in bodies:
            assert self._consumer.receive(timeout_s=30) == Message(b"honest", body)
        self.sent += count


@contextmanager
def honest(server: ServerProcess) -> Iterator[Pair]:
    """A pair of honest clients; after it only the test's own connections may be left."""
    with Producer(port=server.port) as producer, Consumer(port=server.port) as consumer:
        consumer.subscribe("honest")
        server.comes_to(lambda stats: stats.subscriptions == 1)
        pair = Pair(producer, consumer)
        pair.exchange()
        yield pair
        pair.exchange()


@contextmanager
def many(server: ServerProcess, count: int, *data: bytes) -> Iterator[list[Raw]]:
    """*count* clients, each of which has sent these bytes."""
    with ExitStack() as clients:
        yield [clients.enter_context(Raw(server.port).send_bytes(*data)) for _ in range(count)]


def is_as_before(server: ServerProcess, objects: int) -> None:
    """Wait until only the honest pair is connected, and check that no objects are left."""
    server.comes_to(lambda stats: (stats.connections, stats.subscriptions) == (2, 1))
    eventually(lambda: server.memory.objects <= objects + 300, within_s=20)


# ── clients that send slowly ─────────────────────────────────────────────────


def test_hundreds_of_clients_that_send_their_role_slowly_are_disconnected(start: Start) -> None:
    count = 300
    server = start(handshake_s=2.0)
    with honest(server) as pair:
        objects = server.memory.objects
        with many(server, count) as dripping:
            for byte in b"produc":
                pair.exchange()
                for client in dripping:
                    with suppress(ConnectionError):
                        client.send_bytes(bytes([byte]))
            assert all(client.is_closed() for client in dripping)
        is_as_before(server, objects)
        stats = server.stats
        assert (stats.handshake_timeouts, stats.protocol_errors) == (count, 0)


@pytest.mark.parametrize(
    "announced",
    [
        b"produce*" + u32(64 * KIB),
        b"produce*" + u32(1) + b"a" + u32(16 * MIB) + b"the beginning",
        b"consume>" + u32(64 * KIB) + b"the beginning",
    ],
    ids=["a name", "a message", "a subscription"],
)
def test_announced_bytes_that_are_never_sent_take_no_memory(start: Start, announced: bytes) -> None:
    count = 300
    server = start()
    with honest(server) as pair:
        before = server.memory
        with many(server, count, announced):
            server.comes_to(lambda stats: stats.producers + stats.consumers == count + 2)
            pair.exchange()
            assert server.memory.peak - before.now <= count * 8 * KIB + 4 * MIB
        is_as_before(server, before.objects)


def test_incomplete_messages_take_only_the_memory_of_their_received_bytes(start: Start) -> None:
    count, size = 200, 100 * KIB
    server = start()
    partial = b"produce" + message(b"a", b"x" * size)[:-100]
    with honest(server) as pair:
        before = server.memory
        with many(server, count, partial) as clients:
            server.comes_to(lambda stats: stats.producers == count + 1)
            for _ in range(50):
                for client in clients:
                    client.send_bytes(b"x")
            pair.exchange()
            # A growing bytearray takes up to an eighth more than its bytes.
            limit = count * size * 9 // 8 + SPARE_BYTES
            assert server.memory.now - before.now <= limit
            assert server.stats.received == pair.sent
        is_as_before(server, before.objects)


# ── clients that disconnect ──────────────────────────────────────────────────


def test_producers_that_disconnect_within_a_frame_leave_nothing_behind(start: Start) -> None:
    server = start()
    frame = message(b"honest", b"never to be seen" * 1_000)
    with honest(server) as pair:
        objects = server.memory.objects
        for number in range(200):
            cut = 1 + number * len(frame) // 200
            Raw(server.port).send_bytes(b"produce", frame[:cut]).close(reset=number % 2 == 0)
            if number % 20 == 0:
                pair.exchange()
        is_as_before(server, objects)
        assert server.stats.received == pair.sent


def test_consumers_that_disconnect_during_delivery_affect_no_other_client(start: Start) -> None:
    server = start()
    with honest(server) as pair, Raw(server.port).send_bytes(b"produce") as producer:
        objects = server.memory.objects
        for number in range(30):
            with many(server, 5, b"consume", subscribe(b"a"), subscribe(b"")) as clients:
                server.comes_to(lambda stats: stats.subscriptions == 11)
                producer.send(*[(b"a", b"x" * 20_000)] * 40)
                for client in clients:
                    client.read(1 + 3_000 * number)
                    client.close(reset=number % 2 == 0)
            pair.exchange()
            server.comes_to(lambda stats: stats.subscriptions == 1)
        producer.close()
        is_as_before(server, objects)


_DYING = """
import socket, sys
consumer, producer = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in "12"]
consumer.sendall(b"consume>\\0\\0\\0\\1a>\\0\\0\\0\\0")
producer.sendall(b"produce*\\0\\0\\0\\6honest\\0\\0\\0\\7half")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_client_process_is_removed(start: Start) -> None:
    server = start()
    command = [sys.executable, "-c", _DYING, str(server.port)]
    with honest(server) as pair:
        objects = server.memory.objects
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as dying:
            assert dying.stdout is not None
            assert dying.stdout.readline() == "ready\n"
            server.comes_to(lambda stats: (stats.subscriptions, stats.producers) == (3, 2))
            pair.exchange()
            dying.send_signal(signal.SIGKILL)
        is_as_before(server, objects)
        assert server.stats.received == pair.sent


# ── clients that exceed limits ───────────────────────────────────────────────


def test_a_full_server_refuses_connections_until_one_closes(start: Start) -> None:
    limit, too_many = 40, 100
    server = start(max_connections=limit)
    with honest(server) as pair:
        with many(server, limit - 2, b"consume", subscribe(b"x")) as inside:
            server.comes_to(lambda stats: stats.connections == limit)
            for _ in range(too_many):
                with Raw(server.port) as outside:
                    assert outside.is_closed()
            pair.exchange()
            stats = server.stats
            assert (stats.refused, stats.connections) == (too_many, limit)
            inside[0].close()
            server.comes_to(lambda stats: stats.connections == limit - 1)
            with Raw(server.port).send_bytes(b"healthz") as late:
                assert late.rest() == b"OK"
        server.comes_to(lambda stats: stats.connections == 2)
        assert server.stats.accepted == limit + 1


def test_a_server_without_free_file_descriptors_serves_its_connections() -> None:
    with ServerProcess("uvloop", max_files=60) as server, honest(server) as pair:
        with many(server, 80, b"produce") as clients:
            server.comes_to(lambda stats: stats.connections > 20)
            assert clients[-1].is_closed()
            pair.exchange()
        server.comes_to(lambda stats: stats.connections == 2)
        with Raw(server.port).send_bytes(b"healthz") as late:
            assert late.rest() == b"OK"


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_consumers_that_never_read_take_no_more_than_their_buffers(
    start: Start, policy: str
) -> None:
    deaf, bound, read = 20, MIB, 256 * KIB
    server = start(slow=policy, max_buffer_bytes=bound, send_buffer_bytes=64 * KIB)
    frame = message(b"a", b"x" * 50_000)
    with honest(server) as pair:
        before = server.memory
        with (
            many(server, deaf, b"consume", subscribe(b"a")),
            Raw(server.port).send_bytes(b"produce") as producer,
        ):
            server.comes_to(lambda stats: stats.subscriptions == deaf + 1)
            sending = threading.Thread(target=_say, args=(producer, frame * 500))
            sending.start()
            match policy:
                case "disconnect":
                    server.comes_to(lambda stats: stats.disconnected == deaf)
                case "drop":
                    server.comes_to(lambda stats: stats.received == 500 + pair.sent)
                case "block":
                    server.comes_to(lambda stats: stats.received_bytes > bound)
            pair.exchange()
            assert server.memory.peak - before.now <= deaf * (bound + 2 * read) + SPARE_BYTES
            if policy == "drop":
                stats = server.stats
                assert stats.delivered + stats.dropped == 500 * deaf + pair.sent
        sending.join()
        is_as_before(server, before.objects)


def _say(producer: Raw, data: bytes) -> None:
    with suppress(OSError):
        producer.send_bytes(data)


@pytest.mark.slow
def test_a_client_that_subscribes_endlessly_is_disconnected_and_removed(start: Start) -> None:
    server = start()
    with honest(server) as pair:
        objects = server.memory.objects
        for round_ in range(3):
            with Raw(server.port).send_bytes(b"consume") as greedy:
                flood = b"".join(subscribe(b"%d" % number) for number in range(100_001))
                _say(greedy, flood)
                assert greedy.is_closed()
            pair.exchange()
            assert server.stats.protocol_errors == round_ + 1
        is_as_before(server, objects)


def test_a_client_that_subscribes_and_unsubscribes_endlessly_affects_no_other_client(
    start: Start,
) -> None:
    server = start()
    flips = (subscribe(b"") + unsubscribe(b"") + subscribe(b"a") + unsubscribe(b"a")) * 10_000
    with honest(server) as pair, many(server, 100, b"consume", subscribe(b"")) as others:
        server.comes_to(lambda stats: stats.subscriptions == 101)
        with many(server, 3, b"consume") as restless:
            for client in restless:
                client.send_bytes(
                    flips, unsubscribe(b"never"), unsubscribe(b""), subscribe(b"calm")
                )
            pair.exchange()
            server.comes_to(lambda stats: stats.subscriptions == 104)
            with Raw(server.port).send_bytes(b"produce").send((b"calm", b"1")):
                for client in restless:
                    while (got := client.message()) != (b"calm", b"1"):
                        assert got[0] == b"honest"
        for client in others:
            while (got := client.message()) != (b"calm", b"1"):
                assert got[0] == b"honest"


def test_unsubscribing_from_unknown_queues_changes_nothing(start: Start) -> None:
    server = start()
    with honest(server) as pair:
        before = server.memory
        with Raw(server.port).send_bytes(b"consume", subscribe(b"a")) as odd:
            odd.send_bytes(*(unsubscribe(b"%d" % number) for number in range(50_000)))
            odd.send_bytes(subscribe(b"b"))
            server.comes_to(lambda stats: stats.subscriptions == 3)
            pair.exchange()
            with (
                Raw(server.port)
                .send_bytes(b"produce")
                .send((b"a", b"1"), (b"7", b"2"), (b"b", b"3"))
            ):
                assert odd.messages(2) == [(b"a", b"1"), (b"b", b"3")]
        assert server.memory.now - before.now <= SPARE_BYTES
        is_as_before(server, before.objects)


# ── the server itself dies ───────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_our_clients_reconnect_to_a_server_that_was_killed(start: Start, kind: str) -> None:
    server = start()
    with consuming(kind, server.port) as consumer, producing(kind, server.port) as producer:
        consumer.subscribe("a", "b")
        consumer.unsubscribe("b")
        for _ in range(3):
            server.comes_to(lambda stats: stats.subscriptions == 1)
            producer.send("a", "1")
            assert consumer.receive(timeout_s=30) == Message(b"a", b"1")
            server.kill()
            with pytest.raises(BrokerUnavailable):
                consumer.receive(timeout_s=30)
            with pytest.raises(BrokerUnavailable):
                _send_on_and_on(producer)
            with pytest.raises(BrokerUnavailable):
                consumer.receive(timeout_s=30)
            server.restart()
            assert consumer.receive(timeout_s=0.01) is None


def _send_on_and_on(producer: Producer) -> None:
    for _ in range(1_000):
        producer.send("a", "lost")


def test_a_port_is_free_at_once_though_clients_stay_connected(start: Start) -> None:
    server = start()
    with many(server, 50, b"consume", subscribe(b"a")) as clients:
        server.comes_to(lambda stats: stats.subscriptions == 50)
        server.kill()
        server.restart()
        assert all(client.is_closed() for client in clients)
        with honest(server) as pair:
            pair.exchange()
