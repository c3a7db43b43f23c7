"""The heartbeat schedule of a client: when to send one for each batch that it is handling.

A server disconnects a peer that is silent for `peer_timeout_s`, and gives its batch to others. So
a client that needs longer for a batch sends heartbeats meanwhile. Nothing here sends or waits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tambomq.gomq.model import PEER_TIMEOUT_S

# Two heartbeats in a row may be lost.
_PER_TIMEOUT: Final = 3
_MIN_INTERVAL_S: Final = 0.05
# On a busy machine a healthy server may take a few tenths of a second to reply.
_MIN_REPLY_TIMEOUT_S: Final = 0.5
_MAX_REPLY_TIMEOUT_S: Final = 2.0


@dataclass(slots=True)
class _Interval:
    """The heartbeats of one batch. Two threads use it: what one has dropped, the other may move."""

    next_at: float
    every_s: float


@dataclass(slots=True)
class BatchHeartbeats:
    """The unacknowledged batches of one client, by consumer. Times are monotonic seconds."""

    _intervals: dict[str, _Interval] = field(default_factory=dict)

    def observed(self, consumer: str, batch: str, timeout_s: float | None, now: float) -> bool:
        """Note the reply to an Observe; return whether it brought a batch.

        *timeout_s* is the peer timeout of the server; `None` if its reply does not name one.
        """
        if not batch:
            self._intervals.pop(consumer, None)
            return False
        every_s = max(_MIN_INTERVAL_S, (timeout_s or PEER_TIMEOUT_S) / _PER_TIMEOUT)
        self._intervals[consumer] = _Interval(now + every_s, every_s)
        return True

    def due(self, now: float) -> list[str]:
        """Return the consumers whose heartbeat is due, and schedule their next ones."""
        found = []
        for consumer, interval in list(self._intervals.items()):
            if interval.next_at <= now:
                # Not stored again: the batch may have been acknowledged a moment ago.
                interval.next_at = now + interval.every_s
                found.append(consumer)
        return found

    def reply_timeout_s(self, consumer: str) -> float:
        """Return how long to wait for a reply before trying another connection.

        Half the interval: a connection that has gone silent must not delay the next heartbeat.
        """
        interval = self._intervals.get(consumer)
        every_s = interval.every_s if interval else 0.0
        return min(max(every_s / 2, _MIN_REPLY_TIMEOUT_S), _MAX_REPLY_TIMEOUT_S)

    def next_in_s(self, now: float) -> float | None:
        """Return the time until the next heartbeat; `None` if no batch is being handled."""
        found = list(self._intervals.values())
        return min((max(0.0, each.next_at - now) for each in found), default=None)

    def drop(self, consumer: str) -> None:
        """Send none for *consumer* any more: its batch is not being handled."""
        self._intervals.pop(consumer, None)

    def clear(self) -> None:
        """Send none at all any more; the server will then disconnect the peer."""
        self._intervals.clear()
