"""RSMQ's values (messages, queue attributes, statistics) and the checks of their ranges."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tambomq.errors import InvalidBody, InvalidValue

Body: TypeAlias = str | bytes

MAX_SECONDS = 9_999_999
SMALLEST_MAXSIZE, LARGEST_MAXSIZE = 1024, 65536
UNLIMITED = -1
DEFAULT_VT, DEFAULT_DELAY, DEFAULT_MAXSIZE = 30, 0, 65536

OVERFLOWS = ("refuse", "dead-letter")

_TIME_DIGITS = 10
# Every receive checks a number; making this union takes as long as the check.
_NUMBER = int | float
# Beyond this, a number in a script is not exact.
_MAX_BOUND = 2**53
# A receive of this many is 2,000 scripts in one round trip; a larger count is a mistake.
_MAX_COUNT = 1_000_000


def sent_ms(id: str) -> int | None:
    """Return when a message was sent, from the base-36 microseconds in its id; `None` if none."""
    try:
        return int(id[:_TIME_DIGITS], 36) // 1000
    except ValueError:
        return None


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it was when received, popped or peeked at. Times are epoch milliseconds."""

    id: str
    body: bytes
    rc: int
    """How often it has been received, this time included."""
    fr: int
    """When it was first received; 0 if never."""
    visible_at: int
    """When it becomes visible to consumers (again)."""
    reason: str | None = None
    """Why it is in a dead-letter queue; set by `peek_messages` alone."""
    token: str = ""
    """Identifies its last delivery; empty without one, or if the client writes no receipts."""
    traceback: str | None = None
    """Traceback of the handler error that is the `reason`, if a worker stored one."""

    @property
    def sent(self) -> int:
        """When it was sent, from the base-36 microseconds in its id; 0 if the id has none."""
        return sent_ms(self.id) or 0

    @property
    def text(self) -> str:
        """The body as text; raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.body.decode("utf-8")

    @property
    def receipt(self) -> str:
        """Proof of this delivery: void once the message is received again."""
        return f"{self.rc}-{self.token}" if self.token else str(self.rc)


class QueueBounds(msgspec.Struct, frozen=True):
    """How much a queue holds and for how long, with what happens beyond; -1 is no bound."""

    max_messages: int = UNLIMITED
    """Messages, hidden and delayed ones too."""
    max_bytes: int = UNLIMITED
    """Bytes of their bodies."""
    message_ttl_s: float = UNLIMITED
    """Seconds that a message may be visible without being received."""
    overflow: str = "refuse"
    """What becomes of a message that does not fit: ``"refuse"`` or ``"dead-letter"``."""
    dead: str = ""
    """The queue that gets expired messages and, with that overflow, those that do not fit."""
    bytes: int = 0
    """Bytes counted for `max_bytes`; those of messages that have left are subtracted late."""
    refused: int = 0
    """Messages refused since the bounds were set; one that was tried twice counts twice."""
    overflowed: int = 0
    """Messages dead-lettered because the queue was full."""
    expired: int = 0
    """Messages dead-lettered because they had expired."""

    @property
    def any(self) -> bool:
        """Whether the queue has a bound."""
        return max(self.max_messages, self.max_bytes, self.message_ttl_s) > 0


class QueueAttributes(msgspec.Struct, frozen=True):
    """A queue's settings and counts. `vt` and `delay` are seconds, times epoch seconds."""

    vt: float
    delay: float
    maxsize: int
    totalrecv: int
    totalsent: int
    created: int
    modified: int
    msgs: int
    hiddenmsgs: int
    bounds: QueueBounds = QueueBounds()
    """What `set_queue_bounds` has set."""


class QueueStats(msgspec.Struct, frozen=True):
    """A queue counted message by message, damaged entries included."""

    queue: str
    visible: int
    """Waiting to be received."""
    in_flight: int
    """Received and hidden."""
    delayed: int
    """Sent with a delay, never received, not yet visible."""
    oldest_visible_ms: int
    """How long the oldest visible message has been waiting; 0 without one."""
    body_bytes: int
    """Total size of all bodies."""
    members_without_body: int
    """Ids in the zset without a body: receivers skip them."""
    bodies_without_member: int
    """Bodies whose id is not in the zset: they are never received."""
    stray_fields: int
    """Per-message counters and reasons without a message."""
    attributes: QueueAttributes


def to_bytes(body: Body) -> bytes:
    """Return *body* as the bytes that are stored: text as UTF-8."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode("utf-8")
        except UnicodeEncodeError:
            # A lone surrogate cannot be encoded as UTF-8.
            raise InvalidBody(body) from None
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise InvalidBody(body)


def check_seconds(what: str, value: float) -> float:
    """Return *value* if it may be a `vt` or `delay`; raise `InvalidValue` if not."""
    if isinstance(value, bool) or not isinstance(value, _NUMBER):
        raise InvalidValue(what, value, "a number of seconds")
    if not 0 <= value <= MAX_SECONDS:
        raise InvalidValue(what, value, f"between 0 and {MAX_SECONDS} seconds")
    return value


def check_whole_seconds(what: str, value: int) -> int:
    """Return *value* if it may be a queue's own `vt` or `delay`.

    Fractions are allowed for one call, but not in the hash: half the clients read
    ``0.5`` there as 0.
    """
    if not isinstance(value, int):
        raise InvalidValue(what, value, "a whole number of seconds")
    check_seconds(what, value)
    return value


def check_count(value: int, *, minimum: int = 1, maximum: int = _MAX_COUNT) -> int:
    """Return *value* if it may be a number of messages; raise `InvalidValue` if not."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise InvalidValue("count", value, f"a whole number between {minimum} and {maximum}")
    return value


def check_bound(what: str, value: int) -> int:
    """Return *value* if it may be `max_messages` or `max_bytes`; raise `InvalidValue` if not."""
    rule = f"from 1 to {_MAX_BOUND}, or {UNLIMITED} for no bound"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(what, value, rule)
    if value != UNLIMITED and not 1 <= value <= _MAX_BOUND:
        raise InvalidValue(what, value, rule)
    return value


def check_ttl(value: float) -> float:
    """Return *value* if it may be a `message_ttl_s`; raise `InvalidValue` if not."""
    rule = f"more than 0 and at most {MAX_SECONDS} seconds, or {UNLIMITED} for no TTL"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue("message_ttl_s", value, rule)
    if value != UNLIMITED and not 0 < value <= MAX_SECONDS:
        raise InvalidValue("message_ttl_s", value, rule)
    return value


def check_maxsize(value: int) -> int:
    """Return *value* if it may be a `maxsize`; raise `InvalidValue` if not."""
    rule = f"between {SMALLEST_MAXSIZE} and {LARGEST_MAXSIZE} bytes, or {UNLIMITED} for no limit"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue("maxsize", value, rule)
    if value != UNLIMITED and not SMALLEST_MAXSIZE <= value <= LARGEST_MAXSIZE:
        raise InvalidValue("maxsize", value, rule)
    return value
