"""KqueueMsgQ's frames and their bytes.

    *  name_len name msg_len msg    a message: to the server, and on to consumers as it is
    >  name_len name                subscribe, without a name to all queues
    /  name_len name                unsubscribe, without a name from everything

Lengths are unsigned 32-bit integers in network byte order; names and messages are any bytes.
A length is checked as soon as it is there, before anything it announces is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from tambomq.errors import (
    InvalidBody,
    InvalidFormat,
    InvalidValue,
    MessageTooLong,
    RemoteProtocolError,
)

Text: TypeAlias = str | bytes
T = TypeVar("T")
Run: TypeAlias = tuple[int, int, T, int]
"""Frames that go to the same targets: first byte, byte after the last, targets, how many."""
Request: TypeAlias = tuple[int, bytes]
"""`SUBSCRIBE` or `UNSUBSCRIBE`, and the name."""

MESSAGE, SUBSCRIBE, UNSUBSCRIBE = b"*>/"
OK: Final = b"OK"

_HEAD: Final = Struct("!BI")
_U32: Final = Struct("!I")
head_at, size_at = _HEAD.unpack_from, _U32.unpack_from
HEAD_BYTES, SMALLEST = _HEAD.size, _HEAD.size + _U32.size
"""The bytes of a type and a name's length; those of the smallest message."""
# So many bytes in one send are far from one call for each message, and soon at hand.
_PACK_BYTES = 256 * 1024
_MOST_U32 = (1 << 32) - 1


class Limits(msgspec.Struct, frozen=True):
    """How long a queue's name and a message may be, in bytes."""

    name_bytes: int = 64 * 1024
    message_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse what no length on the wire can say."""
        for what in ("name_bytes", "message_bytes"):
            if not 0 < getattr(self, what) <= _MOST_U32:
                raise InvalidValue(what, getattr(self, what), f"between 1 and {_MOST_U32}")


LIMITS: Final = Limits()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a consumer receives it."""

    queue: bytes
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; raises `UnicodeDecodeError` if it is none."""
        return self.body.decode("utf-8")


class MessageBeyondLimit(RemoteProtocolError):
    """A frame that is one, with a longer body than is taken."""


class Rest(NamedTuple):
    """What stands after the last whole frame."""

    start: int
    wanted: int
    """How many bytes there must be from *start* before it is worth looking again."""
    error: RemoteProtocolError | None
    """Why it never becomes a frame."""


# ── values to bytes ──────────────────────────────────────────────────────────


def encode_message(queue: Text, body: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame of a message. Raises `LocalProtocolError`, `MessageTooLong`."""
    return _prefix(queue, limits) + _field(queue, body, limits)


def encode_subscribe(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame that subscribes to a queue, without a name to all."""
    name = name_of(queue, limits)
    return _HEAD.pack(SUBSCRIBE, len(name)) + name


def encode_unsubscribe(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame that ends a subscription, without a name all of them."""
    name = name_of(queue, limits)
    return _HEAD.pack(UNSUBSCRIBE, len(name)) + name


def pack_messages(
    messages: Iterable[tuple[Text, Text]], limits: Limits = LIMITS
) -> Iterator[tuple[bytes, int]]:
    """Yield many frames at a time, and how many they are.

    What comes before a message that cannot be sent is yielded before its error is raised.
    """
    parts: list[bytes] = []
    size, last, prefix = 0, None, b""
    try:
        for queue, body in messages:
            if queue is not last:
                prefix, last = _prefix(queue, limits), queue
            field = _field(queue, body, limits)
            parts += (prefix, field)
            size += len(prefix) + len(field)
            if size >= _PACK_BYTES:
                yield b"".join(parts), len(parts) // 2
                parts, size = [], 0
    except Exception:
        if parts:
            yield b"".join(parts), len(parts) // 2
        raise
    if parts:
        yield b"".join(parts), len(parts) // 2


def name_of(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return a queue's name as bytes. Raises `LocalProtocolError`."""
    try:
        name = queue.encode() if isinstance(queue, str) else bytes(memoryview(queue))
    except (TypeError, UnicodeEncodeError):
        raise InvalidFormat("queue name", queue, "it is bytes, or text that UTF-8 has") from None
    if len(name) > limits.name_bytes:
        raise InvalidValue(
            "the length of a queue name", len(name), f"at most {limits.name_bytes} bytes"
        )
    return name


def _prefix(queue: Text, limits: Limits) -> bytes:
    name = name_of(queue, limits)
    return _HEAD.pack(MESSAGE, len(name)) + name


def _field(queue: Text, body: Text, limits: Limits) -> bytes:
    try:
        data = body.encode() if isinstance(body, str) else bytes(memoryview(body))
    except (TypeError, UnicodeEncodeError):
        raise InvalidBody(body) from None
    if len(data) > limits.message_bytes:
        shown = queue if isinstance(queue, str) else queue.decode(errors="replace")
        raise MessageTooLong(shown, len(data), limits.message_bytes)
    return _U32.pack(len(data)) + data


# ── bytes to values ──────────────────────────────────────────────────────────


def scan(
    data: bytes, pos: int, routes: Mapping[bytes, T], limits: Limits
) -> tuple[list[Run[T]], Rest]:
    """Group the messages from *pos* on into runs of the same targets, in their order.

    Looks every name up until one repeats; then it compares whole names, and where the
    length repeats too, whole headers, which is all a producer of one queue needs.
    """
    end, first, count = len(data), pos, 0
    most_name, most = limits.name_bytes, limits.message_bytes
    runs: list[Run[T]] = []
    # None until the first frame has targets; nobody counts before.
    last, targets = None, cast("T", None)
    while end - pos >= SMALLEST:
        kind, size = head_at(data, pos)
        name_end = pos + HEAD_BYTES + size
        if kind != MESSAGE or size > most_name or name_end + 4 > end:
            break
        (size,) = size_at(data, name_end)
        following = name_end + 4 + size
        if following > end or size > most:
            break
        name = data[pos + HEAD_BYTES : name_end]
        if name == last:
            pos, more = _same_name(data, following, data[pos:name_end], most)
            count += 1 + more
            continue
        last, found = name, routes[name]
        if found is not targets:
            if count:
                runs.append((first, pos, targets, count))
            first, count, targets = pos, 0, found
        count += 1
        pos = following
    if count:
        runs.append((first, pos, targets, count))
    return runs, rest_of(data, pos, b"*", limits)


def _same_name(data: bytes, pos: int, prefix: bytes, most: int) -> tuple[int, int]:
    """Go on from *pos* while frames begin with *prefix*: where they end, and how many they are."""
    end, begins = len(data), data.startswith
    to_size, to_body, count, last = len(prefix), len(prefix) + 4, 0, -1
    while begins(prefix, pos) and pos + to_body <= end:
        (size,) = size_at(data, pos + to_size)
        whole = to_body + size
        if pos + whole > end or size > most:
            break
        began, pos = pos, pos + whole
        if size == last:
            header = data[began : began + to_body]
            while begins(header, pos):
                pos += whole
            if pos > end:
                pos -= whole
            count += (pos - began) // whole
        else:
            count += 1
            last = size
    return pos, count


def messages_in(data: bytes, pos: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the queue and the body of each message of a run."""
    while pos < end:
        name_end = pos + HEAD_BYTES + head_at(data, pos)[1]
        body = name_end + 4
        following = body + size_at(data, name_end)[0]
        yield data[pos + HEAD_BYTES : name_end], data[body:following]
        pos = following


def scan_requests(data: bytes, pos: int, limits: Limits) -> tuple[list[Request], Rest]:
    """Return what a consumer asks for from *pos* on, in its order."""
    end, requests = len(data), []
    while end - pos >= HEAD_BYTES:
        kind, size = head_at(data, pos)
        following = pos + HEAD_BYTES + size
        if following > end or size > limits.name_bytes or kind not in (SUBSCRIBE, UNSUBSCRIBE):
            break
        requests.append((kind, data[pos + HEAD_BYTES : following]))
        pos = following
    return requests, rest_of(data, pos, b">/", limits)


def rest_of(data: bytes, pos: int, allowed: bytes, limits: Limits) -> Rest:
    """Judge the frame at *pos*, of the *allowed* kinds, by what is there of it."""
    if pos == len(data):
        return Rest(pos, HEAD_BYTES, None)
    try:
        return Rest(pos, _wanted(data, pos, allowed, limits), None)
    except RemoteProtocolError as error:
        return Rest(pos, 0, error)


def _wanted(data: bytes, pos: int, allowed: bytes, limits: Limits) -> int:
    """Return how many bytes the frame at *pos* has, or those that will tell."""
    have, wanted = len(data) - pos, HEAD_BYTES
    if data[pos] not in allowed:
        raise RemoteProtocolError(_not_allowed(data[pos]))
    if have < wanted:
        return wanted
    kind, size = head_at(data, pos)
    if size > limits.name_bytes:
        raise RemoteProtocolError(f"a name of {size} bytes exceeds {limits.name_bytes}")
    wanted += int(size)
    if kind != MESSAGE:
        return wanted
    wanted += 4
    if have < wanted:
        return wanted
    (size,) = size_at(data, pos + wanted - 4)
    if size > limits.message_bytes:
        raise MessageBeyondLimit(f"a message of {size} bytes exceeds {limits.message_bytes}")
    return wanted + int(size)


def _not_allowed(kind: int) -> str:
    if kind == MESSAGE:
        return "a consumer sends no messages"
    if kind in (SUBSCRIBE, UNSUBSCRIBE):
        return "only a consumer subscribes and unsubscribes"
    return f"no frame begins with {bytes((kind,))!r}"
