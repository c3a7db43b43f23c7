"""Counters and statistics of a KqueueMsgQ server, as a whole and by queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal

import msgspec

from tambomq.kqueue.frames import HEAD_BYTES, Run, head_at, names_in

MAX_NAMES: Final = 1000
"""Queues that are counted: producers choose names freely."""
MAX_NAME_BYTES: Final = 256
"""Messages to queues with longer names are not counted by queue."""
FRAMES: Final = 16
"""Frames of one read that are looked at: some microseconds, where a full read takes 200."""


class Counters(msgspec.Struct):
    """Totals since the server was created; they never decrease."""

    accepted: int = 0
    """Connections accepted."""
    refused: int = 0
    """Connections closed at once, because of `max_connections`."""
    received: int = 0
    """Messages from producers."""
    received_bytes: int = 0
    """Their frames' bytes."""
    delivered: int = 0
    """Messages written to consumers: one that goes to three counts three times."""
    delivered_bytes: int = 0
    """Their frames' bytes."""
    unrouted: int = 0
    """Messages without a subscriber."""
    dropped: int = 0
    """Messages not written to a slow consumer, by the policy ``drop``."""
    disconnected: int = 0
    """Connections closed for being slow, by the policy ``disconnect``."""
    protocol_errors: int = 0
    """Connections closed for a protocol error."""
    handshake_timeouts: int = 0
    """Connections closed because the client did not send its role in time."""
    frame_timeouts: int = 0
    """Connections closed for a frame that was not complete in time."""
    over_budget: int = 0
    """Connections closed because all clients together held too much memory."""
    probes: int = 0
    """Health probes answered."""
    recorded: int = 0
    """Messages written to a journal."""
    unrecorded: int = 0
    """Messages that should be in a journal and, as far as is known, are not."""


class Stats(Counters, frozen=True):  # type: ignore[misc]  # (msgspec has no such rule)
    """Current gauges of a server, and its counters."""

    connections: int = 0
    producers: int = 0
    consumers: int = 0
    subscriptions: int = 0
    buffered_bytes: int = 0
    """Bytes that consumers have not read yet."""


class QueueTraffic(msgspec.Struct, frozen=True):
    """The messages of one queue since the server was created, and who receives them now."""

    name: str
    received: int
    delivered: int
    """One that goes to three consumers counts three times."""
    subscribers: int


class ConnectionInfo(msgspec.Struct, frozen=True):
    """A client's connection."""

    address: str
    role: Literal["producer", "consumer", ""]
    """Empty until the client has sent it."""
    subscriptions: list[str]
    """The first ones; ``*`` for all queues."""
    buffered_bytes: int
    """Bytes that the client has not read yet."""
    paused: bool
    """Whether the server reads nothing from it, since a consumer is too slow."""


class TrafficCounters:
    """Messages received and delivered, by queue, at a cost that does not grow with their number.

    A read of many messages is counted by a sample: some of its frames stand for all.
    """

    def __init__(self) -> None:
        self._received: dict[bytes, float] = {}
        self._delivered: dict[bytes, float] = {}
        self._before: dict[bytes, float] = {}
        """What was received when idle queues were last forgotten."""

    def count(self, data: bytes, runs: Sequence[Run[frozenset[Any]]]) -> None:
        """Count the messages of one read."""
        if len(runs) == 1 and runs[0][3] == 1:
            # One message per read costs a producer most: half a microsecond instead of one.
            start = runs[0][0]
            name_end = start + HEAD_BYTES + head_at(data, start)[1]
            self._add(data[start + HEAD_BYTES : name_end], 1, len(runs[0][2]))
            return
        # Evenly spread over the runs, and at least one frame of each that is looked at.
        chosen = runs if len(runs) <= FRAMES else runs[:: -(-len(runs) // FRAMES)]
        of_run = max(1, FRAMES // len(chosen))
        looked_at = sum(min(run[3], of_run) for run in chosen)
        weight = sum(run[3] for run in chosen) / looked_at * (len(runs) / len(chosen))
        for start, end, targets, _ in chosen:
            copies = weight * len(targets)
            for name in names_in(data, start, end, of_run):
                self._add(name, weight, copies)

    def _add(self, name: bytes, messages: float, copies: float) -> None:
        if name in self._received:
            self._received[name] += messages
            self._delivered[name] += copies
        elif len(self._received) < MAX_NAMES and len(name) <= MAX_NAME_BYTES:
            self._received[name], self._delivered[name] = messages, copies

    def list_queues(
        self, subscribers: Mapping[bytes, AbstractSet[object]], wildcards: int
    ) -> list[QueueTraffic]:
        """Return the queues with messages, and those with subscribers, by name."""
        names = dict.fromkeys(self._received)
        for name in subscribers:
            if len(names) >= MAX_NAMES:
                break
            if len(name) <= MAX_NAME_BYTES:
                names[name] = None
        return [
            QueueTraffic(
                name.decode("utf-8", "backslashreplace"),
                round(self._received.get(name, 0)),
                round(self._delivered.get(name, 0)),
                len(subscribers.get(name, ())) + wildcards,
            )
            for name in sorted(names)
        ]

    def forget_idle(self) -> None:
        """Forget queues without a message since the last call, so that new ones can be counted."""
        for name, before in self._before.items():
            if self._received.get(name) == before:
                del self._received[name], self._delivered[name]
        self._before = dict(self._received)
