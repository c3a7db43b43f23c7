"""Many clients, slow clients, long messages: all messages arrive, and memory is bounded.

The server runs in a process of its own; what it may take is said beside each test.
"""

from __future__ import annotations

import random
import resource
import selectors
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

import pytest

from tambomq.kqueue import Consumer, Message, Producer
from tambomq.kqueue.decoder import MessageDecoder
from tests.kqueue.naive import message, pieces, subscribe
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw

KIB, MIB = 1 << 10, 1 << 20
# The size of one read of the server, and memory that the allocator may keep.
READ_BYTES = 256 * KIB
SPARE_BYTES = 16 * MIB


class FastReaders:
    """Many consumers that read without delay, and compare the messages with those sent."""

    def __init__(self, server: ServerProcess, count: int, expected: bytes) -> None:
        self._expected = memoryview(expected)
        self._open = ExitStack()
        self._selector = self._open.enter_context(selectors.DefaultSelector())
        self._places: dict[socket.socket, int] = {}
        for _ in range(count):
            each = self._open.enter_context(
                Raw(server.port).send_bytes(b"consume", subscribe(b"a"))
            )
            self._selector.register(each.socket, selectors.EVENT_READ)
            self._places[each.socket] = 0

    def read(self, until: int) -> None:
        """Read until each has *until* bytes."""
        while min(self._places.values()) < until:
            self.read_once(30)

    def read_once(self, within_s: float) -> None:
        """Read once, if anything arrives *within_s*."""
        for key, _ in self._selector.select(within_s):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            piece, place = client.recv(MIB), self._places[client]
            assert piece, "a quick consumer was disconnected"
            assert piece == self._expected[place : place + len(piece)]
            self._places[client] = place + len(piece)

    def close(self) -> None:
        self._open.close()


class SlowReader:
    """A consumer that reads about 1 KB a second until `hurry` is called."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        self._socket.settimeout(30)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(b"consume" + subscribe(b"a"))
        self.got = bytearray()
        self._hurry = Event()

    def drip(self) -> None:
        try:
            while not self._hurry.wait(0.1):
                self.got += self._socket.recv(100)
        except ConnectionResetError:
            pass

    def hurry(self) -> None:
        self._hurry.set()

    def read(self, until: int) -> None:
        """Read until it has *until* bytes, or the connection is closed."""
        try:
            while len(self.got) < until and (piece := self._socket.recv(MIB)):
                self.got += piece
        except ConnectionResetError:
            pass

    def numbers(self) -> list[int]:
        """The numbers in the messages it has received."""
        return [int(each.body[:8]) for each in MessageDecoder().feed(bytes(self.got))]

    def close(self) -> None:
        self._socket.close()


# ── one slow consumer beside many quick ones ─────────────────────────────────

QUICK, COUNT = 50, 3_000
FRAMES = [message(b"a", b"%08d" % number + b"x" * 1_000) for number in range(COUNT)]
FRAME = len(FRAMES[0])
BOUND = 256 * KIB
SENT = b"".join(FRAMES)


@contextmanager
def crowd(server: ServerProcess) -> Iterator[tuple[FastReaders, SlowReader]]:
    """The consumers, registered by the server, whose memory is checked afterwards."""
    at_rest = server.memory.now
    with ThreadPoolExecutor(1) as threads:
        quick, slow = FastReaders(server, QUICK, SENT), SlowReader(server.port)
        server.comes_to(lambda stats: stats.subscriptions == QUICK + 1)
        dripping = threads.submit(slow.drip)
        try:
            yield quick, slow
        finally:
            slow.hurry()
            dripping.result()
            quick.close()
            slow.close()
    # One read is written whole if the buffer is not full.
    assert server.memory.peak - at_rest <= (QUICK + 1) * (BOUND + READ_BYTES) + SPARE_BYTES


def send_in_step(server: ServerProcess, quick: FastReaders) -> None:
    """Send everything, but wait while the fast readers are too far behind."""
    step = 100 * FRAME
    with Raw(server.port).send_bytes(b"produce") as producer:
        for place in range(0, len(SENT), step):
            producer.send_bytes(SENT[place : place + step])
            quick.read(place + step)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_slow_reader_is_disconnected_and_fifty_fast_ones_get_everything(loop: str) -> None:
    options = {"max_buffer_bytes": BOUND, "send_buffer_bytes": 64 * KIB}
    with ServerProcess(loop, slow="disconnect", **options) as server, crowd(server) as clients:
        quick, slow = clients
        send_in_step(server, quick)
        stats = server.comes_to(lambda stats: stats.consumers == QUICK)
        slow.hurry()
        slow.read(len(SENT))
        assert (stats.received, stats.dropped, stats.disconnected) == (COUNT, 0, 1)
        to_slow = stats.delivered - QUICK * COUNT
        assert 0 < to_slow < COUNT
        assert slow.numbers() == list(range(len(slow.numbers())))
        assert len(slow.numbers()) <= to_slow


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_slow_reader_misses_only_counted_messages_and_fifty_fast_ones_get_everything(
    loop: str,
) -> None:
    options = {"max_buffer_bytes": BOUND, "send_buffer_bytes": 64 * KIB}
    with ServerProcess(loop, slow="drop", **options) as server, crowd(server) as clients:
        quick, slow = clients
        send_in_step(server, quick)
        stats = server.stats
        assert (stats.received, stats.unrouted, stats.disconnected) == (COUNT, 0, 0)
        assert stats.delivered + stats.dropped == COUNT * (QUICK + 1)
        assert 0 < stats.dropped < COUNT
        slow.hurry()
        slow.read((COUNT - stats.dropped) * FRAME)
        got = slow.numbers()
        assert len(got) == COUNT - stats.dropped
        assert got == sorted(set(got))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_slow_reader_blocks_its_producer_and_no_message_is_lost(loop: str) -> None:
    options = {"max_buffer_bytes": BOUND, "send_buffer_bytes": 64 * KIB}
    # Linux doubles the requested socket buffer for its own bookkeeping.
    between = BOUND + READ_BYTES + 2 * 64 * KIB + 2 * 4 * KIB
    with (
        ServerProcess(loop, slow="block", **options) as server,
        crowd(server) as clients,
        Raw(server.port).send_bytes(b"produce") as producer,
        ThreadPoolExecutor(2) as threads,
    ):
        quick, slow = clients
        sending = threads.submit(producer.send_bytes, SENT)
        quick.read(BOUND)
        for _ in range(50):
            quick.read_once(0.01)
            assert server.stats.received_bytes <= len(slow.got) + between
        slow.hurry()
        reading = threads.submit(slow.read, len(SENT))
        quick.read(len(SENT))
        sending.result()
        reading.result()
        assert slow.numbers() == list(range(COUNT))
        stats = server.stats
        assert (stats.delivered, stats.dropped) == (COUNT * (QUICK + 1), 0)
        assert stats.disconnected == 0


# ── many clients ─────────────────────────────────────────────────────────────

IDLE = 2_000


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as idle connections need, here and in processes started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{hard} open files are allowed, {needed} are needed")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.usefixtures("many_files")
def test_two_thousand_idle_connections_take_little_memory_and_affect_no_other_client(
    loop: str,
) -> None:
    with ServerProcess(loop) as server, ExitStack() as idle:
        before = server.memory
        half = IDLE // 2
        clients = [
            idle.enter_context(
                Raw(server.port).send_bytes(b"consume", subscribe(b"own %d" % number))
            )
            for number in range(half)
        ]
        for _ in range(half):
            idle.enter_context(
                Raw(server.port).send_bytes(b"produce", message(b"unrouted", b"x" * 1_000))
            )
        server.comes_to(lambda stats: (stats.subscriptions, stats.producers) == (half, half))
        server.comes_to(lambda stats: stats.received == half)
        # Python takes two kilobytes for a connection; the limit includes a margin.
        assert server.memory.now - before.now <= IDLE * 6 * KIB + 4 * MIB
        with Producer(port=server.port) as producer:
            producer.send_many((b"own %d" % number, b"awake") for number in range(half))
            for number, client in enumerate(clients):
                assert client.message() == (b"own %d" % number, b"awake")
        idle.close()
        server.comes_to(lambda stats: (stats.connections, stats.subscriptions) == (0, 0))
        assert server.memory.objects <= before.objects + 500


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_ten_producers_and_ten_consumers_of_mixed_names_are_all_accounted_for(loop: str) -> None:
    each, names = 1_500, [b"n%d" % number for number in range(12)]
    # Consumer k has every name whose number k + 1 divides, and the last one has all.
    subscriptions = [names[:: number + 1] for number in range(9)]
    with (
        ServerProcess(loop, slow="block") as server,
        ExitStack() as clients,
        ThreadPoolExecutor() as threads,
    ):
        consumers = [clients.enter_context(Consumer(port=server.port)) for _ in range(10)]
        for consumer, wish in zip(consumers, subscriptions, strict=False):
            consumer.subscribe(*wish)
        consumers[-1].subscribe_all()
        known = sum(map(len, subscriptions)) + 1
        server.comes_to(lambda stats: stats.subscriptions == known)
        sent = {
            producer: [
                (names[(producer + n * n) % 12], b"%d %d" % (producer, n)) for n in range(each)
            ]
            for producer in range(10)
        }
        sending = [threads.submit(_send, server.port, batch) for batch in sent.values()]
        total = 0
        for consumer, wish in zip(consumers, [*subscriptions, names], strict=True):
            needed = {
                producer: [Message(*row) for row in rows if row[0] in wish]
                for producer, rows in sent.items()
            }
            count = sum(map(len, needed.values()))
            assert _by_sender(consumer, count) == needed
            total += count
        assert [done.result() for done in sending] == [each] * 10
        stats = server.stats
        assert (stats.received, stats.delivered, stats.unrouted) == (10 * each, total, 0)


def _send(port: int, batch: list[tuple[bytes, bytes]]) -> int:
    with Producer(port=port, timeout_s=30) as producer:
        for row in batch[:100]:
            producer.send(*row)
        return 100 + producer.send_many(batch[100:])


def _by_sender(consumer: Consumer, count: int) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {producer: [] for producer in range(10)}
    for _ in range(count):
        got = consumer.receive(timeout_s=30)
        assert got is not None
        found[int(got.body.split()[0])].append(got)
    return found


# ── long messages ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_messages_of_sixteen_megabytes_may_be_cut_anywhere(loop: str) -> None:
    chance = random.Random(16)
    bodies = [chance.randbytes(1 << 16) * 256 for _ in range(3)]
    with (
        ServerProcess(loop, slow="block") as server,
        Consumer(port=server.port) as ours,
        Raw(server.port).send_bytes(b"consume", subscribe(b"")) as other,
        Raw(server.port).send_bytes(b"produce") as producer,
        Producer(port=server.port) as small,
        ThreadPoolExecutor() as threads,
    ):
        before = server.memory
        ours.subscribe("long")
        server.comes_to(lambda stats: stats.subscriptions == 2)
        reading = threads.submit(lambda: [ours.receive(timeout_s=30) for _ in bodies])
        heard = threads.submit(lambda: other.messages(2 * len(bodies)))
        for body in bodies:
            frame = message(b"long", body)
            cuts = [chance.randrange(len(frame)) for _ in range(20)] + [1, 4, 6, 9, 13, 14]
            for piece in pieces(frame, cuts):
                producer.send_bytes(piece)
            small.send("short", "between")
        assert reading.result() == [Message(b"long", body) for body in bodies]
        assert sorted(heard.result()) == sorted(
            [(b"long", body) for body in bodies] + [(b"short", b"between")] * 3
        )
        # Each is in memory a few times: partial, complete, and in write buffers.
        assert server.memory.peak - before.now <= 8 * 16 * MIB
