"""The values of GOMQ: records, and a service's options with their limits, and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from tambomq.errors import InvalidValue
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalBounds, JournalPolicy
from tambomq.store.durability.level import MEMORY, TIMEOUT_S, durability


class Record(msgspec.Struct, frozen=True, gc=False):
    """A payload that was published to *key*, as it is delivered."""

    key: str
    id: str
    """An xid of 20 characters. Empty if the stored element is not a message of GOMQ."""
    timestamp: str
    """When it was published: ``Tue Jul 18 10:15:04 CEST 2017``."""
    payload: bytes

    @property
    def text(self) -> str:
        """The payload as text; raises `UnicodeDecodeError` if it is not UTF-8."""
        return self.payload.decode("utf-8")


OBSERVE_LIMIT: Final = 50
"""Records per key in one reply; existing servers send no more."""
MAX_MESSAGE_BYTES: Final = 4 << 20
"""The default limit of gRPC, in both directions."""
PEER_TIMEOUT_S: Final = 30.0
MAX_RECORDS: Final = 10_000
"""Records in one PublishMany: one script appends all of them."""
MAX_PEERS: Final = 1000
MAX_KEYS: Final = 1000
MAX_BACKLOG: Final = 1_000_000
MAX_TTL_S: Final = 10 * 365 * 86_400
OVERFLOWS: Final = ("refuse", "dead-letter")
RECORD_BYTES: Final = 128
"""The size of a record without its payload and key: id, timestamp, field numbers."""

# One script visits all keys of a peer, or all peers of a key.
_MAXIMA: Final = {
    "max_peers": 10_000,
    "max_keys": 1000,
    "max_connection_peers": 1_000_000,
    "max_backlog": 1_000_000_000,
}


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of a service, what it journals, and how durably; raises `LocalProtocolError`."""

    peer_timeout_s: float = PEER_TIMEOUT_S
    """A peer that has neither observed nor watched for this long is disconnected."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The limit of a request, and of a reply."""
    observe_limit: int = OBSERVE_LIMIT
    """The limit of records per key in one reply."""
    max_peers: int = MAX_PEERS
    """Peers of one consumer."""
    max_keys: int = MAX_KEYS
    """Keys of one consumer."""
    max_connection_peers: int = MAX_PEERS
    """Peer names that one connection may use within `peer_timeout_s`."""
    max_backlog: int = MAX_BACKLOG
    """The limit of a main queue and of a dedicated queue; slightly more if many publish at once."""
    max_backlog_bytes: int = 0
    """The memory of a main queue; 0 for no limit."""
    message_ttl_s: float = 0.0
    """Seconds that a message may wait in a main queue; 0 for no limit."""
    overflow: Literal["refuse", "dead-letter"] = "refuse"
    """What becomes of a message that exceeds `max_backlog` or `max_backlog_bytes`."""
    journal: tuple[str, ...] = ()
    """Names and patterns of the keys that have a journal."""
    journal_bounds: JournalBounds = DEFAULT_BOUNDS
    """How much each of them holds."""
    durable: str = MEMORY
    """The level of durability of messages whose publisher asks for none."""
    durable_timeout_s: float = TIMEOUT_S
    """How long to wait until a level is confirmed."""

    @property
    def journal_policy(self) -> JournalPolicy | None:
        """Which keys have a journal; `None` if none has."""
        found = JournalPolicy("gomq", self.journal, self.journal_bounds)
        return found if found.patterns else None

    def __post_init__(self) -> None:
        if self.peer_timeout_s <= 0:
            raise InvalidValue("peer_timeout_s", self.peer_timeout_s, "more than 0")
        if self.max_message_bytes < (minimum := 1 << 16):
            raise InvalidValue("max_message_bytes", self.max_message_bytes, f"at least {minimum}")
        if not 1 <= self.observe_limit <= 1000:  # noqa: PLR2004  (leave.lua relies on it)
            raise InvalidValue("observe_limit", self.observe_limit, "from 1 to 1000")
        for name, maximum in _MAXIMA.items():
            if not 1 <= getattr(self, name) <= maximum:
                raise InvalidValue(name, getattr(self, name), f"from 1 to {maximum}")
        if self.max_backlog_bytes < 0:
            raise InvalidValue("max_backlog_bytes", self.max_backlog_bytes, "0 or more")
        if not 0 <= self.message_ttl_s <= MAX_TTL_S:
            raise InvalidValue("message_ttl_s", self.message_ttl_s, f"from 0 to {MAX_TTL_S}")
        if self.overflow not in OVERFLOWS:
            raise InvalidValue("overflow", self.overflow, f"one of {', '.join(OVERFLOWS)}")
        JournalPolicy("gomq", self.journal)
        durability(self.durable, self.durable_timeout_s)


@dataclass(frozen=True, slots=True)
class GomqStats:
    """Counters of a service since its start."""

    published: int
    """Messages accepted."""
    copies: int
    """Messages put into dedicated queues, once for each peer."""
    observed: int
    """Messages delivered to peers."""
    watchers: int
    """Calls to Watch in progress."""
    disconnected: int
    """Peers disconnected for silence."""
    returned: int
    """Their messages that were requeued."""
    refused: int = 0
    """Messages refused because of an alarm."""
    overflowed: int = 0
    """Messages dead-lettered because their key was full."""
    expired: int = 0
    """Messages dead-lettered because they had expired."""
