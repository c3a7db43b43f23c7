"""What a KqueueMsgQ server counts, as values."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """What has happened since the start; only ever grows."""

    accepted: int = 0
    """Connections let in."""
    refused: int = 0
    """Connections closed at once, since there were too many."""
    received: int = 0
    """Messages from producers."""
    received_bytes: int = 0
    """Their frames' bytes."""
    delivered: int = 0
    """Messages handed to consumers: one that goes to three counts three times."""
    delivered_bytes: int = 0
    """Their frames' bytes."""
    unrouted: int = 0
    """Messages that nobody was subscribed to."""
    dropped: int = 0
    """Messages that a slow consumer did not get, by the policy ``drop``."""
    disconnected: int = 0
    """Connections closed for being slow, by the policy ``disconnect``."""
    protocol_errors: int = 0
    """Connections closed for what they sent."""
    handshake_timeouts: int = 0
    """Connections closed for not saying in time what they are."""
    frame_timeouts: int = 0
    """Connections closed for a frame that was not complete in time."""
    over_budget: int = 0
    """Connections closed since all clients together held too much memory."""
    probes: int = 0
    """Health probes answered."""
    recorded: int = 0
    """Messages written into a journal."""
    unrecorded: int = 0
    """Messages that a journal should have taken and, as far as is known, did not."""


class Stats(Counters, frozen=True):  # type: ignore[misc]  # (msgspec has no such rule)
    """What a server holds at one moment, and what has happened since its start."""

    connections: int = 0
    producers: int = 0
    consumers: int = 0
    subscriptions: int = 0
