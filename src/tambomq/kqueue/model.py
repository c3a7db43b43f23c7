"""Counters and statistics of a KqueueMsgQ server."""

from __future__ import annotations

import msgspec


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
