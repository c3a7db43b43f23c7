"""The bytes that producers send and consumers receive, in each protocol. Nothing else differs.

A cycle of messages is built once and sent repeatedly. Its bodies are numbered, so that the
generator, which compares every byte, detects lost, duplicated and reordered messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Large enough that a producer's writes are full, small enough to stay in the caches.
_CYCLE_BYTES = 512 * 1024
_PROBE, _MARKER = b"#hi#", b"#go#"


class Dialect(Protocol):
    """The encoding of messages in one protocol."""

    tail: bytes
    """The bytes after a body."""

    def hello_produce(self) -> bytes:
        """The first bytes of a producer."""

    def hello_consume(self, names: Sequence[bytes]) -> bytes:
        """The first bytes of a consumer: subscriptions to *names*, in this order."""

    def sent(self, name: bytes, body: bytes) -> bytes:
        """A message as its producer sends it."""

    def got(self, number: int, name: bytes, body: bytes) -> bytes:
        """The message as it arrives; *number* is the position of its name in *names*, from 1."""


class Kqueue:
    """KqueueMsgQ."""

    tail = b""

    def hello_produce(self) -> bytes:
        """The role."""
        return b"produce"

    def hello_consume(self, names: Sequence[bytes]) -> bytes:
        """The role, and a subscription for each name."""
        return b"consume" + b"".join(b">" + _sized(name) for name in names)

    def sent(self, name: bytes, body: bytes) -> bytes:
        """A message frame."""
        return b"*" + _sized(name) + _sized(body)

    def got(self, _number: int, name: bytes, body: bytes) -> bytes:
        """The same frame."""
        return self.sent(name, body)


class Nats:
    """Core NATS: no acknowledgements, no persistence."""

    tail = b"\r\n"

    def hello_produce(self) -> bytes:
        """No ``+OK`` for each message."""
        return b'CONNECT {"verbose":false,"pedantic":false}\r\n'

    def hello_consume(self, names: Sequence[bytes]) -> bytes:
        """A subscription for each name."""
        wanted = (b"SUB %b %d\r\n" % (name, number) for number, name in enumerate(names, 1))
        return self.hello_produce() + b"".join(wanted)

    def sent(self, name: bytes, body: bytes) -> bytes:
        """A PUB."""
        return b"PUB %b %d\r\n%b\r\n" % (name, len(body), body)

    def got(self, number: int, name: bytes, body: bytes) -> bytes:
        """A MSG, with the subscription's number."""
        return b"MSG %b %d %d\r\n%b\r\n" % (name, number, len(body), body)


class Resp:
    """Redis PUBLISH and SUBSCRIBE, pipelined."""

    tail = b"\r\n"

    def hello_produce(self) -> bytes:
        """Nothing."""
        return b""

    def hello_consume(self, names: Sequence[bytes]) -> bytes:
        """One command for all names."""
        return _resp(b"SUBSCRIBE", *names)

    def sent(self, name: bytes, body: bytes) -> bytes:
        """A PUBLISH; its reply is read and discarded."""
        return _resp(b"PUBLISH", name, body)

    def got(self, _number: int, name: bytes, body: bytes) -> bytes:
        """A push with three parts."""
        return _resp(b"message", name, body)


@dataclass(frozen=True, slots=True)
class Script:
    """The input of the generator, as files of a directory."""

    folder: Path
    frame_bytes: int
    """The length of one sent message; all have the same."""
    messages: int
    """Messages per cycle."""


def write(folder: Path, dialect: Dialect, *, size: int, names: int, producers: int) -> Script:
    """Write the bytes to send and to expect: bodies of *size* bytes to *names* in turn.

    The cycles of several producers interleave, so their bodies are all equal.
    """
    queues = [b"bench.%04d" % number for number in range(names)]
    meeting = b"bench.meet"
    frame_bytes = len(dialect.sent(queues[0], b"x" * size))
    messages = max(1, _CYCLE_BYTES // frame_bytes // names) * names
    bodies = [_body(0 if producers > 1 else number, size) for number in range(messages)]
    sent = [dialect.sent(queues[i % names], body) for i, body in enumerate(bodies)]
    got = [dialect.got(i % names + 1, queues[i % names], body) for i, body in enumerate(bodies)]
    for name, content in {
        "hello.produce": dialect.hello_produce(),
        "hello.consume": dialect.hello_consume([*queues, meeting]),
        "probe": dialect.sent(meeting, _PROBE),
        "marker": dialect.sent(meeting, _MARKER),
        "tail": dialect.tail,
        "send": b"".join(sent),
        "expect": b"".join(got),
    }.items():
        (folder / name).write_bytes(content)
    return Script(folder, frame_bytes, messages)


def _body(number: int, size: int) -> bytes:
    return (b"%08d" % number).ljust(size, b"x")


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def _resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
