"""Clients that mean harm, or die: they get nothing by it, and nobody else notices.

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
# What the allocator may keep, whatever happens.
SPARE_BYTES = 12 * MIB

Start: TypeAlias = Callable[..., ServerProcess]


@pytest.fixture(params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """A function that starts a server; all are looked at when the test is over."""
    with ExitStack() as running:

        def begin(**options: Any) -> ServerProcess:
            return running.enter_context(ServerProcess(request.param, **options))

        yield begin


class Pair:
    """An honest producer and an honest consumer."""

    def __init__(self, producer: Producer, consumer: Consumer) -> None:
        self._producer, self._consumer, self.sent = producer, consumer, 0

    def exchange(self, count: int = 20) -> None:
        """Send so many messages, all of which arrive in their order."""
        bodies = [b"%d" % number for number in range(self.sent, self.sent + count)]
        self._producer.send_many(("honest", body) for body in bodies)
        for body in bodies:
            assert self._consumer.receive(timeout_s=30) == Message(b"honest", body)
        self.sent += count


@contextmanager
def honest(server: ServerProcess) -> Iterator[Pair]:
    """A pair; when it leaves, nobody must be left but those who are still open."""
    with Producer(port=server.port) as producer, Consumer(port=server.port) as consumer:
        consumer.subscribe("honest")
        server.comes_to(lambda stats: stats.subscriptions == 1)
        pair = Pair(producer, consumer)
        pair.exchange()
        yield pair
        pair.exchange()


@contextmanager
def many(server: ServerProcess, count: int, *said: bytes) -> Iterator[list[Raw]]:
    """So many clients, each of which has said this."""
    with ExitStack() as clients:
        yield [clients.enter_context(Raw(server.port).say(*said)) for _ in range(count)]


def is_as_before(server: ServerProcess, objects: int) -> None:
    """Wait until only the honest are left, and see that nothing of the others is."""
    server.comes_to(lambda stats: (stats.connections, stats.subscriptions) == (2, 1))
    eventually(lambda: server.memory.objects <= objects + 300, within_s=20)


# ── those who do not come to the point ───────────────────────────────────────


def test_hundreds_who_drip_their_first_word_are_all_shown_out(start: Start) -> None:
    count = 300
    server = start(handshake_s=2.0)
    with honest(server) as pair:
        objects = server.memory.objects
        with many(server, count) as dripping:
            for byte in b"produc":
                pair.exchange()
                for client in dripping:
                    with suppress(ConnectionError):
                        client.say(bytes([byte]))
            assert all(client.is_hung_up() for client in dripping)
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
def test_what_is_announced_and_never_sent_takes_no_memory(start: Start, announced: bytes) -> None:
    count = 300
    server = start()
    with honest(server) as pair:
        before = server.memory
        with many(server, count, announced):
            server.comes_to(lambda stats: stats.producers + stats.consumers == count + 2)
            pair.exchange()
            assert server.memory.peak - before.now <= count * 8 * KIB + 4 * MIB
        is_as_before(server, before.objects)


def test_messages_that_never_end_take_what_has_come_of_them(start: Start) -> None:
    count, size = 200, 100 * KIB
    server = start()
    begun = b"produce" + message(b"a", b"x" * size)[:-100]
    with honest(server) as pair:
        before = server.memory
        with many(server, count, begun) as clients:
            server.comes_to(lambda stats: stats.producers == count + 1)
            for _ in range(50):
                for client in clients:
                    client.say(b"x")
            pair.exchange()
            # Growing by pieces takes up to an eighth more than has come.
            most = count * size * 9 // 8 + SPARE_BYTES
            assert server.memory.now - before.now <= most
            assert server.stats.received == pair.sent
        is_as_before(server, before.objects)


# ── those who vanish ─────────────────────────────────────────────────────────


def test_producers_that_break_off_in_the_middle_leave_nothing_behind(start: Start) -> None:
    server = start()
    frame = message(b"honest", b"never to be seen" * 1_000)
    with honest(server) as pair:
        objects = server.memory.objects
        for number in range(200):
            cut = 1 + number * len(frame) // 200
            Raw(server.port).say(b"produce", frame[:cut]).close(rudely=number % 2 == 0)
            if number % 20 == 0:
                pair.exchange()
        is_as_before(server, objects)
        assert server.stats.received == pair.sent


def test_consumers_that_break_off_while_they_are_served_hinder_nobody(start: Start) -> None:
    server = start()
    with honest(server) as pair, Raw(server.port).say(b"produce") as producer:
        objects = server.memory.objects
        for number in range(30):
            with many(server, 5, b"consume", subscribe(b"a"), subscribe(b"")) as clients:
                server.comes_to(lambda stats: stats.subscriptions == 11)
                producer.send(*[(b"a", b"x" * 20_000)] * 40)
                for client in clients:
                    client.read(1 + 3_000 * number)
                    client.close(rudely=number % 2 == 0)
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


def test_a_client_process_that_is_killed_is_forgotten(start: Start) -> None:
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


# ── those who want too much ──────────────────────────────────────────────────


def test_a_full_server_shows_others_out_until_somebody_leaves(start: Start) -> None:
    most, too_many = 40, 100
    server = start(max_connections=most)
    with honest(server) as pair:
        with many(server, most - 2, b"consume", subscribe(b"x")) as inside:
            server.comes_to(lambda stats: stats.connections == most)
            for _ in range(too_many):
                with Raw(server.port) as outside:
                    assert outside.is_hung_up()
            pair.exchange()
            stats = server.stats
            assert (stats.refused, stats.connections) == (too_many, most)
            inside[0].close()
            server.comes_to(lambda stats: stats.connections == most - 1)
            with Raw(server.port).say(b"healthz") as late:
                assert late.rest() == b"OK"
        server.comes_to(lambda stats: stats.connections == 2)
        assert server.stats.accepted == most + 1


def test_a_server_that_may_open_no_more_files_serves_those_it_has() -> None:
    with ServerProcess("uvloop", max_files=60) as server, honest(server) as pair:
        with many(server, 80, b"produce") as clients:
            server.comes_to(lambda stats: stats.connections > 20)
            assert clients[-1].is_hung_up()
            pair.exchange()
        server.comes_to(lambda stats: stats.connections == 2)
        with Raw(server.port).say(b"healthz") as late:
            assert late.rest() == b"OK"


@pytest.mark.parametrize("policy", ["disconnect", "drop", "block"])
def test_consumers_that_never_read_cost_what_is_allowed(start: Start, policy: str) -> None:
    deaf, bound, read = 20, MIB, 256 * KIB
    server = start(slow=policy, max_buffer_bytes=bound, send_buffer_bytes=64 * KIB)
    frame = message(b"a", b"x" * 50_000)
    with honest(server) as pair:
        before = server.memory
        with (
            many(server, deaf, b"consume", subscribe(b"a")),
            Raw(server.port).say(b"produce") as producer,
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
        producer.say(data)


@pytest.mark.slow
def test_who_subscribes_without_an_end_is_shown_out_and_forgotten(start: Start) -> None:
    server = start()
    with honest(server) as pair:
        objects = server.memory.objects
        for round_ in range(3):
            with Raw(server.port).say(b"consume") as greedy:
                flood = b"".join(subscribe(b"%d" % number) for number in range(100_001))
                _say(greedy, flood)
                assert greedy.is_hung_up()
            pair.exchange()
            assert server.stats.protocol_errors == round_ + 1
        is_as_before(server, objects)


def test_who_comes_and_goes_without_an_end_hinders_nobody(start: Start) -> None:
    server = start()
    flips = (subscribe(b"") + unsubscribe(b"") + subscribe(b"a") + unsubscribe(b"a")) * 10_000
    with honest(server) as pair, many(server, 100, b"consume", subscribe(b"")) as others:
        server.comes_to(lambda stats: stats.subscriptions == 101)
        with many(server, 3, b"consume") as restless:
            for client in restless:
                client.say(flips, unsubscribe(b"never"), unsubscribe(b""), subscribe(b"calm"))
            pair.exchange()
            server.comes_to(lambda stats: stats.subscriptions == 104)
            with Raw(server.port).say(b"produce").send((b"calm", b"1")):
                for client in restless:
                    while (got := client.message()) != (b"calm", b"1"):
                        assert got[0] == b"honest"
        for client in others:
            while (got := client.message()) != (b"calm", b"1"):
                assert got[0] == b"honest"


def test_ending_what_was_never_begun_changes_nothing(start: Start) -> None:
    server = start()
    with honest(server) as pair:
        before = server.memory
        with Raw(server.port).say(b"consume", subscribe(b"a")) as odd:
            odd.say(*(unsubscribe(b"%d" % number) for number in range(50_000)))
            odd.say(subscribe(b"b"))
            server.comes_to(lambda stats: stats.subscriptions == 3)
            pair.exchange()
            with Raw(server.port).say(b"produce").send((b"a", b"1"), (b"7", b"2"), (b"b", b"3")):
                assert odd.messages(2) == [(b"a", b"1"), (b"b", b"3")]
        assert server.memory.now - before.now <= SPARE_BYTES
        is_as_before(server, before.objects)


# ── the server itself dies ───────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_our_clients_come_back_to_a_server_that_was_killed(start: Start, kind: str) -> None:
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


def test_a_port_is_free_again_at_once_though_clients_hold_on(start: Start) -> None:
    server = start()
    with many(server, 50, b"consume", subscribe(b"a")) as clients:
        server.comes_to(lambda stats: stats.subscriptions == 50)
        server.kill()
        server.restart()
        assert all(client.is_hung_up() for client in clients)
        with honest(server) as pair:
            pair.exchange()
