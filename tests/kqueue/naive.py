"""A reference implementation of the protocol: slow, and simple enough to be obviously right."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from tambomq.kqueue import Limits

SMALL = Limits(name_bytes=6, message_bytes=12)

names = st.sampled_from([b"", b"a", b"b", b"queue", b"*", b"\x00\x00\x00\x01"])
bodies = st.sampled_from([b"", b"x", b"*\x00\x00\x00\x01a", b"Hello, world"])
messages = st.lists(st.tuples(names, bodies), max_size=30)
# The fast paths of the scan start where names and lengths repeat.
repeating = st.lists(st.tuples(st.tuples(names, bodies), st.integers(1, 5)), max_size=8).map(
    lambda rows: [message for message, count in rows for _ in range(count)]
)


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def message(name: bytes, body: bytes) -> bytes:
    return b"*" + u32(len(name)) + name + u32(len(body)) + body


def subscribe(name: bytes) -> bytes:
    return b">" + u32(len(name)) + name


def unsubscribe(name: bytes) -> bytes:
    return b"/" + u32(len(name)) + name


def stream(found: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(message(name, body) for name, body in found)


def decode(data: bytes, limits: Limits) -> tuple[list[tuple[bytes, bytes]], int, bool]:
    """The complete messages of *data*, their size in bytes, and whether garbage follows."""
    found: list[tuple[bytes, bytes]] = []
    pos = 0
    while True:
        rest = data[pos:]
        if rest and rest[0] != ord("*"):
            return found, pos, True
        if len(rest) < 5:
            return found, pos, False
        name_end = 5 + int.from_bytes(rest[1:5], "big")
        if name_end - 5 > limits.name_bytes:
            return found, pos, True
        if len(rest) < name_end + 4:
            return found, pos, False
        end = name_end + 4 + int.from_bytes(rest[name_end : name_end + 4], "big")
        if end - name_end - 4 > limits.message_bytes:
            return found, pos, True
        if len(rest) < end:
            return found, pos, False
        found.append((rest[5:name_end], rest[name_end + 4 : end]))
        pos += end


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """*data* split at each of *cuts*, modulo its length."""
    positions = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(positions)]


cuts = st.lists(st.integers(0, 2000), max_size=12)
"""Where to split bytes."""
