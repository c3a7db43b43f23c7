"""What GOMQ is about, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from tambomq.errors import InvalidValue
from tambomq.journal.recording import BOUNDS, Bounds, Recording


class Record(msgspec.Struct, frozen=True, gc=False):
    """A payload that was published to *key*, as it was handed out."""

    key: str
    id: str
    """20 characters: an xid. Empty if what was stored is no record of GOMQ's."""
    timestamp: str
    """When it was published: ``Tue Jul 18 10:15:04 CEST 2017``."""
    payload: bytes

    @property
    def text(self) -> str:
        """The payload as text; raises `UnicodeDecodeError` if it is none."""
        return self.payload.decode("utf-8")


OBSERVE_LIMIT: Final = 50
"""Existing clients have never been given more of a key at once."""
MAX_MESSAGE_BYTES: Final = 4 << 20
"""What gRPC takes unless it is told otherwise, on both sides."""
PEER_TIMEOUT_S: Final = 30.0
MAX_RECORDS: Final = 10_000
"""Of one PublishMany: a script appends all of them."""
MAX_PEERS: Final = 1000
MAX_KEYS: Final = 1000
MAX_BACKLOG: Final = 1_000_000
RECORD_BYTES: Final = 128
"""What a record takes beside its payload and its key: id, timestamp, field numbers."""

# A script looks at all keys of a peer, or at all peers of a key, at once.
_MOST: Final = {
    "max_peers": 10_000,
    "max_keys": 1000,
    "max_connection_peers": 1_000_000,
    "max_backlog": 1_000_000_000,
}


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of a service, and what it records; raises `LocalProtocolError`."""

    peer_timeout_s: float = PEER_TIMEOUT_S
    """A peer that has not observed for so long is disconnected."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """Of a request, and of a reply."""
    observe_limit: int = OBSERVE_LIMIT
    """Records of one key in one reply."""
    max_peers: int = MAX_PEERS
    """Of one consumer."""
    max_keys: int = MAX_KEYS
    """Of one consumer."""
    max_connection_peers: int = MAX_PEERS
    """Names of peers that one connection may use within the time of `peer_timeout_s`."""
    max_backlog: int = MAX_BACKLOG
    """Messages that may wait in a main queue, and for one peer; about, where many come at once."""
    journal: tuple[str, ...] = ()
    """Names and patterns of the keys that have a journal."""
    journal_bounds: Bounds = BOUNDS
    """How much each of them holds."""

    @property
    def recording(self) -> Recording | None:
        """Which keys have a journal; `None` if none has."""
        found = Recording("gomq", self.journal, self.journal_bounds)
        return found if found.patterns else None

    def __post_init__(self) -> None:
        if self.peer_timeout_s <= 0:
            raise InvalidValue("peer_timeout_s", self.peer_timeout_s, "more than 0")
        if self.max_message_bytes < (least := 1 << 16):
            raise InvalidValue("max_message_bytes", self.max_message_bytes, f"at least {least}")
        if not 1 <= self.observe_limit <= 1000:  # noqa: PLR2004  (what leave.lua keeps in mind)
            raise InvalidValue("observe_limit", self.observe_limit, "from 1 to 1000")
        for what, most in _MOST.items():
            if not 1 <= getattr(self, what) <= most:
                raise InvalidValue(what, getattr(self, what), f"from 1 to {most}")
        Recording("gomq", self.journal)
