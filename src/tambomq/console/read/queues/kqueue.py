"""Samples of KqueueMsgQ queues, from the server in this process."""

from __future__ import annotations

from typing import Final

from tambomq.console.read.queues.broker_view import BrokerView
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.kqueue.model import ConnectionInfo

CONNECTIONS: Final = 1000
"""Connections that are looked at."""


class KqueueQueues:
    """Samples the queues of *view*; without one there are none."""

    def __init__(self, view: BrokerView | None) -> None:
        self._view = view

    def sample(self) -> dict[str, QueueSample]:
        """Return the numbers of the queues."""
        if self._view is None:
            return {}
        slowest: dict[str, ConnectionInfo] = {}
        for connection in self.connections():
            for name in connection.subscriptions if connection.buffered_bytes else ():
                slowest.setdefault(name, connection)
        limit = self._view.max_buffer_bytes
        samples = {}
        for each in self._view.list_queues():
            slow = slowest.get(each.name) or slowest.get("*")
            samples[each.name] = QueueSample(
                depth=0,
                entered=each.received,
                left=each.delivered,
                workers=each.subscribers,
                # Nothing is kept: without subscribers nothing grows either.
                copies=each.subscribers,
                slow_consumer=(slow.address, slow.buffered_bytes, limit) if slow else None,
            )
        return samples

    def connections(self) -> list[ConnectionInfo]:
        """Return the connections, those with the fullest buffers first."""
        return list(self._view.list_connections(CONNECTIONS)) if self._view else []
