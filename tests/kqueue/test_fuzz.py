"""A million frames, many of them wrong, sent in pieces by clients of every kind.

Each stream of bytes is judged here as well, in the plainest way; the server must come to the same
judgement, stay as small as it was, and serve a pair of honest clients all the while.
"""

from __future__ import annotations

import random
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import NamedTuple

import pytest

from tambomq.clock import Deadline
from tambomq.kqueue import Consumer, Limits, Message, Producer
from tambomq.kqueue.decoder import MessageDecoder
from tests.kqueue.naive import decode, message, pieces, subscribe, u32, unsubscribe
from tests.kqueue.server_process import ServerProcess

# Small, so that random lengths often exceed them.
LIMITS = Limits(name_bytes=40, message_bytes=600)
FUZZERS = 4
WITHIN_S = 25.0
# Frames that even a slow or busy machine handles in that time.
MIN_FRAMES = 50_000

# Allowed growth of the server's memory: the allocator keeps some.
MORE_BYTES = 24 << 20
MORE_OBJECTS = 1_000

_NAMES = [b"", b"a", b"b", b"\x00\x00\x00\x01", b"*", b"queue", b"n" * LIMITS.name_bytes]
_BODIES = [b"", b"x", message(b"a", b"1"), b"OK", b"\xff" * 9, b"b" * LIMITS.message_bytes]
_MESSAGES = [message(name, body) for name in _NAMES for body in _BODIES]
_REQUESTS = [ask(name) for name in _NAMES for ask in (subscribe, unsubscribe)]
_WRONG = [
    b"*" + u32(LIMITS.name_bytes + 1),
    b"*" + u32((1 << 32) - 1) + b"a",
    b"*" + u32(1 << 31),
    b"*" + u32(1) + b"a" + u32(LIMITS.message_bytes + 1),
    b"*" + u32(0) + u32((1 << 32) - 1),
    b">" + u32(LIMITS.name_bytes + 1),
    b"/" + u32((1 << 32) - 1),
    b"?",
    b"\x00",
    b"produce",
    b"GET / HTTP/1.1\r\n\r\n",
]
_WORDS = [b"Produce", b"consumE", b"\x16\x03\x01\x02\x00\x01\x00", b"healthy", b"*\0\0\0\1a\0"]


class Outcome(NamedTuple):
    """The expected outcome of a stream of bytes."""

    received: int = 0
    received_bytes: int = 0
    requests: int = 0
    errors: int = 0
    probes: int = 0


def expected_outcome(stream: bytes) -> Outcome:
    """The outcome of *stream* by the protocol page."""
    word, rest = stream[:7], stream[7:]
    if len(word) < 7:
        return Outcome()
    if word == b"produce":
        found, size, is_wrong = decode(rest, LIMITS)
        return Outcome(len(found), size, 0, is_wrong)
    if word == b"consume":
        count, is_wrong = _asked(rest)
        return Outcome(0, 0, count, is_wrong)
    return Outcome(probes=1) if word == b"healthz" else Outcome(errors=1)


def _asked(data: bytes) -> tuple[int, bool]:
    """How many requests a consumer sends, and whether garbage follows."""
    pos = count = 0
    while pos < len(data):
        if data[pos] not in b">/":
            return count, True
        size = int.from_bytes(data[pos + 1 : pos + 5], "big")
        if len(data) >= pos + 5 and size > LIMITS.name_bytes:
            return count, True
        if len(data) < pos + 5 + size:
            break
        pos, count = pos + 5 + size, count + 1
    return count, False


def a_stream(chance: random.Random) -> bytes:
    """All bytes of some client."""
    kind = chance.random()
    if kind < 0.05:
        return chance.choice([*_WORDS, chance.randbytes(chance.randrange(40))])
    if kind < 0.08:
        return chance.choice([b"", b"prod", b"consum", b"healthz", b"healthz" + _MESSAGES[0]])
    word, usual = (b"consume", _REQUESTS) if kind < 0.25 else (b"produce", _MESSAGES)
    frames = chance.choices(usual, k=chance.randrange(400))
    if chance.random() < 0.5:
        # Runs of equal frames take the server's fast path.
        frames = [frame for frame in frames[:80] for _ in range(chance.randrange(1, 8))]
    ending = chance.random()
    if ending < 0.3:
        frames.insert(chance.randrange(len(frames) + 1), chance.choice(_WRONG))
    elif ending < 0.6:
        frames.append(chance.choice([*_WRONG, *_REQUESTS, *_MESSAGES, chance.randbytes(30)]))
    stream = word + b"".join(frames)
    return _damaged(stream, chance) if ending > 0.85 else stream


def _damaged(stream: bytes, chance: random.Random) -> bytes:
    """*stream* with a few bytes changed, removed or inserted."""
    found = bytearray(stream)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found))
        match chance.randrange(3):
            case 0:
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                del found[at : at + chance.randrange(1, 9)]
            case _:
                found[at:at] = chance.randbytes(chance.randrange(1, 9))
        found = found or bytearray(b"p")
    return bytes(found)


def send_parts(port: int, parts: list[bytes]) -> bytes:
    """Send *parts* on a new connection, and return all that the server sends."""
    heard = bytearray()
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # If the server closes the connection earlier, sending stops and shutdown() fails too.
        with suppress(OSError):
            for part in parts:
                client.sendall(part)
            client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while piece := client.recv(1 << 16):
                heard += piece
    return bytes(heard)


def fuzz(port: int, seed: str, frames: int, deadline: Deadline) -> Counter[str]:
    """Send streams until the server has handled *frames* frames; return their outcomes."""
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    while total["frames"] < frames and not deadline.passed:
        stream = a_stream(chance)
        judged = expected_outcome(stream)
        cuts = [chance.randrange(len(stream) + 1) for _ in range(chance.choice([0, 1, 2, 6, 30]))]
        heard = send_parts(port, pieces(stream, cuts))
        if not judged.probes:
            # Complete messages, perhaps the beginning of one, and never anything else.
            MessageDecoder(LIMITS).feed(heard)
            assert not heard or heard.startswith(b"*")
        total.update(judged._asdict(), streams=1)
        total["frames"] += judged.received + judged.requests + judged.errors
    return total


def honest(consumer: Consumer, producer: Producer, is_over: Event) -> int:
    """Send and receive numbers in order until *is_over* is set; return how many."""
    number = 0
    while not is_over.is_set():
        bodies = [b"%d" % each for each in range(number, number + 50)]
        producer.send_many((b"honest", body) for body in bodies)
        for body in bodies:
            assert consumer.receive(timeout_s=30) == Message(b"honest", body)
        number += len(bodies)
    return number


class Listener:
    """A consumer of all queues that counts its messages."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.sendall(b"consume" + subscribe(b""))
        self.messages = 0

    def listen(self) -> None:
        """Count until the connection is closed; raise for anything but messages."""
        decoder = MessageDecoder(LIMITS)
        while piece := self._socket.recv(1 << 18):
            self.messages += len(decoder.feed(piece))
        self._socket.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)


def fuzz_beside(server: ServerProcess, frames: int) -> tuple[Counter[str], int, int]:
    """The outcomes of many fuzzers, the messages of an honest pair, and those of a listener."""
    is_over, before = Event(), server.stats.received
    with (
        Consumer(port=server.port) as consumer,
        Producer(port=server.port) as producer,
        ThreadPoolExecutor() as threads,
    ):
        consumer.subscribe("honest")
        listener = Listener(server.port)
        server.comes_to(lambda stats: stats.subscriptions == 2)
        listening = threads.submit(listener.listen)
        pair = threads.submit(honest, consumer, producer, is_over)
        share, deadline = frames // FUZZERS, Deadline(WITHIN_S)
        fuzzing = [
            threads.submit(fuzz, server.port, f"{number}", share, deadline)
            for number in range(FUZZERS)
        ]
        try:
            fuzzed = sum((each.result() for each in fuzzing), Counter[str]())
            is_over.set()
            exchanged = pair.result()
            server.comes_to(lambda stats: stats.received == before + listener.messages)
        finally:
            is_over.set()
            listener.close()
        listening.result()
        return fuzzed, exchanged, listener.messages


@pytest.mark.parametrize(
    ("loop", "frames"),
    [pytest.param("uvloop", 1_000_000, marks=pytest.mark.slow), ("asyncio", 100_000)],
)
def test_fuzzed_frames_affect_only_their_sender(loop: str, frames: int) -> None:
    limits = {"name_bytes": LIMITS.name_bytes, "message_bytes": LIMITS.message_bytes}
    # Buffers are large enough that no message is lost, however late a busy machine reads.
    with ServerProcess(loop, limits=limits, slow="block") as server:
        first = fuzz(server.port, "first", 20_000, Deadline(WITHIN_S / 5))
        server.comes_to(lambda stats: stats.connections == 0)
        before = server.memory
        fuzzed, exchanged, heard = fuzz_beside(server, frames)
        stats = server.comes_to(lambda stats: stats.connections == 0)
        after = server.memory
    total = first + fuzzed
    assert total["frames"] >= MIN_FRAMES
    assert exchanged
    assert stats.accepted == total["streams"] + 3
    assert stats.received == total["received"] + exchanged
    assert heard == fuzzed["received"] + exchanged
    assert stats.protocol_errors == total["errors"]
    assert stats.probes == total["probes"]
    assert stats.delivered >= heard + exchanged
    assert stats.unrouted <= first["received"]
    assert (stats.refused, stats.dropped, stats.disconnected, stats.handshake_timeouts) == (0,) * 4
    assert (stats.producers, stats.consumers, stats.subscriptions) == (0, 0, 0)
    assert after.objects <= before.objects + MORE_OBJECTS
    assert after.now <= before.now + MORE_BYTES
