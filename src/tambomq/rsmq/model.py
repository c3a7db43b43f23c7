"""What RSMQ is about: messages and queues, as values."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tambomq.errors import InvalidBody, InvalidValue

Body: TypeAlias = str | bytes

MAX_SECONDS = 9_999_999
SMALLEST_MAXSIZE, LARGEST_MAXSIZE = 1024, 65536
UNLIMITED = -1
DEFAULT_VT, DEFAULT_DELAY, DEFAULT_MAXSIZE = 30, 0, 65536

_TIME_DIGITS = 10
# A receive of so many is 2,000 scripts in one trip already; more is a slip of the hand.
_MOST = 1_000_000


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it was when received, popped or peeked at. Times are epoch milliseconds."""

    id: str
    body: bytes
    rc: int
    """How often it has been received, this time included."""
    fr: int
    """When it was first received; 0 if never."""
    visible_at: int
    """When others see it (again)."""
    reason: str | None = None
    """Why it is in a dead-letter queue; only `peek_messages` tells."""
    token: str = ""
    """Names its last delivery; empty if it has none, or a client without receipts received it."""
    traceback: str | None = None
    """Where its handler raised the error that is the `reason`, if a worker said."""

    @property
    def sent(self) -> int:
        """When it was sent: the id begins with the microsecond, in base 36; 0 if it does not."""
        try:
            return int(self.id[:_TIME_DIGITS], 36) // 1000
        except ValueError:
            return 0

    @property
    def text(self) -> str:
        """The body as text; raises `UnicodeDecodeError` if it is none."""
        return self.body.decode("utf-8")

    @property
    def receipt(self) -> str:
        """Proof of this very delivery: void once anybody receives the message again."""
        return f"{self.rc}-{self.token}" if self.token else str(self.rc)


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


class QueueStats(msgspec.Struct, frozen=True):
    """A queue counted message by message, with whatever is damaged in it."""

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
    """Size of all bodies together."""
    members_without_body: int
    """Ids that are listed but have no body: receivers skip them."""
    bodies_without_member: int
    """Bodies that are not listed: nobody will ever receive them."""
    stray_fields: int
    """Counts and reasons that belong to no message."""
    attributes: QueueAttributes


def to_bytes(body: Body) -> bytes:
    """Return *body* as the bytes that are stored: text as UTF-8."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode("utf-8")
        except UnicodeEncodeError:
            # A lone surrogate is a str that no encoding of text can carry.
            raise InvalidBody(body) from None
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise InvalidBody(body)


def check_seconds(what: str, value: float) -> float:
    """Return *value* if it may be a `vt` or `delay`; raise `InvalidValue` if not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(what, value, "a number of seconds")
    if not 0 <= value <= MAX_SECONDS:
        raise InvalidValue(what, value, f"between 0 and {MAX_SECONDS} seconds")
    return value


def check_whole_seconds(what: str, value: int) -> int:
    """Return *value* if it may be a queue's own `vt` or `delay`.

    Fractions are fine for one call, but not in the hash: half the clients read
    ``0.5`` there as 0.
    """
    if not isinstance(value, int):
        raise InvalidValue(what, value, "a whole number of seconds")
    check_seconds(what, value)
    return value


def check_count(value: int, *, least: int = 1, most: int = _MOST) -> int:
    """Return *value* if it may be a number of messages; raise `InvalidValue` if not."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue("count", value, f"a whole number between {least} and {most}")
    return value


def check_maxsize(value: int) -> int:
    """Return *value* if it may be a `maxsize`; raise `InvalidValue` if not."""
    rule = f"between {SMALLEST_MAXSIZE} and {LARGEST_MAXSIZE} bytes, or {UNLIMITED} for no limit"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue("maxsize", value, rule)
    if value != UNLIMITED and not SMALLEST_MAXSIZE <= value <= LARGEST_MAXSIZE:
        raise InvalidValue("maxsize", value, rule)
    return value
