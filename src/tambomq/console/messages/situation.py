"""`Situation`: what is known of one message and its queue when somebody asks why it is not running.

Plain values: readers fill them in, `explain` decides. `None` means unknown, or that it does not
apply to the protocol.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tambomq.console.messages.model import MessageState
from tambomq.console.model import Protocol


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that has received a message and not settled it."""

    name: str = ""
    """Empty if the protocol does not know it."""
    silent_s: float | None = None
    """How long it has neither renewed nor observed."""
    takeover_s: float | None = None
    """Others may take the message once the holder is silent for so long."""
    until_ms: int | None = None
    """When the message becomes visible again, if it is not settled."""
    lease: str = ""
    """The Spark lease through which it was received."""
    lease_state: str = ""
    """``held``, ``away``, ``dead`` or ``free``."""


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """The messages before one that waits, and how fast they go."""

    ahead: int | None = None
    is_exact: bool = True
    """Whether there are no more than `ahead`."""
    waiting: int | None = None
    """All messages in line."""
    per_s: float | None = None
    """Starts per second of late."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """One message, and what can hold it back."""

    protocol: Protocol
    queue: str
    now_ms: int
    state: MessageState
    runs: int = 0
    """Runs or deliveries that began, this one included."""
    max_runs: int | None = None
    is_read_ahead: bool = False
    """ChasquiMQ: a worker has it and has not started it yet."""
    due_ms: int | None = None
    error: str = ""
    """What its last run raised."""
    line: QueueLine = QueueLine()
    workers: int | None = None
    """Workers or peers that are alive."""
    silent_workers: int = 0
    held: int = 0
    """Messages that all of them have."""
    consumers: int | None = None
    """GOMQ: consumers that are subscribed to the key."""
    paused: bool | None = None
    promoter: str | None = None
    """ChasquiMQ: the process that promotes delayed jobs; '' if there is none."""
    limit_started: int | None = None
    limit_ends_ms: int | None = None
    limited_until_ms: int | None = None
    """A worker said that it waits for the limiter until then."""
    backlog_held_until_ms: int | None = None
    full_peer: str = ""
    """GOMQ: the peer that stops its key since too many messages wait for it."""
    unsettled: bool = False
    """GOMQ: messages of departed peers come first."""
    holder: Holder | None = None
    reason: str = ""
    """Why it is dead, or was cancelled."""
    ended: Literal["", "completed", "cancelled", "delivered", "deleted", "dead", "gone"] = ""
    ended_ms: int | None = None
    duration_s: float | None = None
    failing: float | None = None
    """The share of the queue's recent runs that failed."""
    receivers: int | None = None
    """KqueueMsgQ: the consumers that a message went to."""
