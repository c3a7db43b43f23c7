"""What a server that runs in this process says of itself: KqueueMsgQ stores nothing in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tambomq.kqueue.model import ConnectionInfo, QueueTraffic


class BrokerView(Protocol):
    """A KqueueMsgQ server, as the console sees it."""

    @property
    def max_buffer_bytes(self) -> int:
        """How many bytes a consumer may be behind."""

    def list_queues(self) -> Sequence[QueueTraffic]:
        """Return the queues with messages or subscribers lately, by name."""

    def list_connections(self, limit: int) -> Sequence[ConnectionInfo]:
        """Return up to *limit* connections, those with the fullest buffers first."""
