"""Which TLS connections a server of KqueueMsgQ admits."""

from __future__ import annotations

from collections.abc import Callable

from tambomq.kqueue.broker import BrokerState
from tambomq.kqueue.peer import Peer


class PeerPolicy:
    """Admits connections up to the limit of *broker*; handshakes count as connections."""

    def __init__(self, broker: BrokerState, make_peer: Callable[[], Peer]) -> None:
        self._broker, self.make_protocol = broker, make_peer

    @property
    def handshake_s(self) -> float:
        """How long a handshake may take, with the wait for its turn."""
        return self._broker.options.handshake_s

    def admits(self, handshakes: int) -> bool:
        """Whether there may be another connection; count it if not."""
        broker = self._broker
        if broker.connections + handshakes < broker.options.max_connections:
            return True
        broker.counters.refused += 1
        return False

    def on_timeout(self) -> None:
        """Count a handshake that took too long."""
        self._broker.counters.handshake_timeouts += 1
