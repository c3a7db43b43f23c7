"""KqueueMsgQ's frames: encoding and parsing of bytes, without I/O.

    *  name_len name msg_len msg    a message, forwarded to consumers unchanged
    >  name_len name                subscribe; with an empty name, to all queues
    /  name_len name                unsubscribe; with an empty name, from everything

Lengths are unsigned 32-bit integers in network byte order; names and messages are any bytes.
A length is checked as soon as it is read, before any byte that it announces is kept.
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
"""Adjacent frames with the same targets: start, end (exclusive), targets, count."""
Request: TypeAlias = tuple[int, bytes]
"""`SUBSCRIBE` or `UNSUBSCRIBE`, and the name."""

MESSAGE, SUBSCRIBE, UNSUBSCRIBE = b"*>/"
OK: Final = b"OK"

_HEAD: Final = Struct("!BI")
_U32: Final = Struct("!I")
head_at, size_at = _HEAD.unpack_from, _U32.unpack_from
HEAD_BYTES, MIN_MESSAGE_BYTES = _HEAD.size, _HEAD.size + _U32.size
"""Size of a frame type with a name's length, and of the smallest message."""
# Large enough to save system calls, small enough to be packed quickly.
_PACK_BYTES = 256 * 1024
_MAX_U32 = (1 << 32) - 1


class Limits(msgspec.Struct, frozen=True):
    """The maximum lengths of a queue's name and of a message, in bytes."""

    name_bytes: int = 64 * 1024
    message_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Raise `InvalidValue` for a limit that does not fit into a length on the wire."""
        for what in ("name_bytes", "message_bytes"):
            if not 0 < getattr(self, what) <= _MAX_U32:
                raise InvalidValue(what, getattr(self, what), f"between 1 and {_MAX_U32}")


LIMITS: Final = Limits()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as a consumer receives it."""

    queue: bytes
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.body.decode("utf-8")


class MessageBeyondLimit(RemoteProtocolError):
    """A valid frame whose body exceeds the limit."""


class Remainder(NamedTuple):
    """The bytes after the last complete frame."""

    start: int
    needed: int
    """How many bytes from *start* are needed before parsing can go on."""
    error: RemoteProtocolError | None
    """Why these bytes are not the beginning of a frame."""


# ── values to bytes ──────────────────────────────────────────────────────────


def encode_message(queue: Text, body: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame of a message. Raises `LocalProtocolError`, `MessageTooLong`."""
    return _prefix(queue, limits) + _field(queue, body, limits)


def encode_subscribe(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame that subscribes to a queue; with an empty name, to all."""
    name = encode_name(queue, limits)
    return _HEAD.pack(SUBSCRIBE, len(name)) + name


def encode_unsubscribe(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return the frame that ends a subscription; with an empty name, all of them."""
    name = encode_name(queue, limits)
    return _HEAD.pack(UNSUBSCRIBE, len(name)) + name


def pack_messages(
    messages: Iterable[tuple[Text, Text]], limits: Limits = LIMITS
) -> Iterator[tuple[bytes, int]]:
    """Yield packed frames, and how many they are.

    Frames before an invalid message are yielded before its error is raised.
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


def encode_name(queue: Text, limits: Limits = LIMITS) -> bytes:
    """Return a queue's name as bytes. Raises `LocalProtocolError`."""
    try:
        name = queue.encode() if isinstance(queue, str) else bytes(memoryview(queue))
    except (TypeError, UnicodeEncodeError):
        raise InvalidFormat(
            "queue name", queue, "bytes, or text that can be encoded as UTF-8"
        ) from None
    if len(name) > limits.name_bytes:
        raise InvalidValue(
            "the length of a queue name", len(name), f"at most {limits.name_bytes} bytes"
        )
    return name


def _prefix(queue: Text, limits: Limits) -> bytes:
    name = encode_name(queue, limits)
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
) -> tuple[list[Run[T]], Remainder]:
    """Group the messages from *pos* on into runs with the same targets, in order.

    Looks up every name until one repeats; then it compares whole names, and once the
    length repeats too, whole headers, which is the fast path for a producer of one queue.
    """
    end, first, count = len(data), pos, 0
    max_name, max_body = limits.name_bytes, limits.message_bytes
    runs: list[Run[T]] = []
    # None until the first frame has targets; *count* is 0 until then.
    last, targets = None, cast("T", None)
    while end - pos >= MIN_MESSAGE_BYTES:
        kind, size = head_at(data, pos)
        name_end = pos + HEAD_BYTES + size
        if kind != MESSAGE or size > max_name or name_end + 4 > end:
            break
        (size,) = size_at(data, name_end)
        frame_end = name_end + 4 + size
        if frame_end > end or size > max_body:
            break
        name = data[pos + HEAD_BYTES : name_end]
        if name == last:
            pos, more = _same_name(data, frame_end, data[pos:name_end], max_body)
            count += 1 + more
            continue
        last, found = name, routes[name]
        if found is not targets:
            if count:
                runs.append((first, pos, targets, count))
            first, count, targets = pos, 0, found
        count += 1
        pos = frame_end
    if count:
        runs.append((first, pos, targets, count))
    return runs, remainder_at(data, pos, b"*", limits)


def _same_name(data: bytes, pos: int, prefix: bytes, max_body: int) -> tuple[int, int]:
    """Skip frames from *pos* on that begin with *prefix*; return their end and count."""
    end, begins = len(data), data.startswith
    to_size, to_body, count, last = len(prefix), len(prefix) + 4, 0, -1
    while begins(prefix, pos) and pos + to_body <= end:
        (size,) = size_at(data, pos + to_size)
        whole = to_body + size
        if pos + whole > end or size > max_body:
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


def names_in(data: bytes, pos: int, end: int, count: int) -> Iterator[bytes]:
    """Yield the queues of the first *count* messages of a run."""
    while pos < end and count:
        name_end = pos + HEAD_BYTES + head_at(data, pos)[1]
        yield data[pos + HEAD_BYTES : name_end]
        pos, count = name_end + 4 + size_at(data, name_end)[0], count - 1


def messages_in(data: bytes, pos: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the queue and the body of each message of a run."""
    while pos < end:
        name_end = pos + HEAD_BYTES + head_at(data, pos)[1]
        body = name_end + 4
        frame_end = body + size_at(data, name_end)[0]
        yield data[pos + HEAD_BYTES : name_end], data[body:frame_end]
        pos = frame_end


def scan_requests(data: bytes, pos: int, limits: Limits) -> tuple[list[Request], Remainder]:
    """Return the requests of a consumer from *pos* on, in order."""
    end, requests = len(data), []
    while end - pos >= HEAD_BYTES:
        kind, size = head_at(data, pos)
        frame_end = pos + HEAD_BYTES + size
        if frame_end > end or size > limits.name_bytes or kind not in (SUBSCRIBE, UNSUBSCRIBE):
            break
        requests.append((kind, data[pos + HEAD_BYTES : frame_end]))
        pos = frame_end
    return requests, remainder_at(data, pos, b">/", limits)


def remainder_at(data: bytes, pos: int, allowed: bytes, limits: Limits) -> Remainder:
    """Return the incomplete frame at *pos*, or the error if it is not of an *allowed* kind."""
    if pos == len(data):
        return Remainder(pos, HEAD_BYTES, None)
    try:
        return Remainder(pos, _needed(data, pos, allowed, limits), None)
    except RemoteProtocolError as error:
        return Remainder(pos, 0, error)


def _needed(data: bytes, pos: int, allowed: bytes, limits: Limits) -> int:
    """Return the length of the frame at *pos*, or of the part that has the next length."""
    have, needed = len(data) - pos, HEAD_BYTES
    if data[pos] not in allowed:
        raise RemoteProtocolError(_not_allowed(data[pos]))
    if have < needed:
        return needed
    kind, size = head_at(data, pos)
    if size > limits.name_bytes:
        raise RemoteProtocolError(f"a name of {size} bytes exceeds {limits.name_bytes}")
    needed += int(size)
    if kind != MESSAGE:
        return needed
    needed += 4
    if have < needed:
        return needed
    (size,) = size_at(data, pos + needed - 4)
    if size > limits.message_bytes:
        raise MessageBeyondLimit(f"a message of {size} bytes exceeds {limits.message_bytes}")
    return needed + int(size)


def _not_allowed(kind: int) -> str:
    if kind == MESSAGE:
        return "a consumer sends no messages"
    if kind in (SUBSCRIBE, UNSUBSCRIBE):
        return "only a consumer subscribes and unsubscribes"
    return f"no frame begins with {bytes((kind,))!r}"
